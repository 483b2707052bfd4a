import static org.junit.jupiter.api.Assertions.assertEquals;

import io.modelcontextprotocol.client.McpClient;
import io.modelcontextprotocol.client.transport.HttpClientStreamableHttpTransport;
import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.json.McpJsonMapper;
import io.modelcontextprotocol.spec.McpSchema;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class PlanTest {
    static final McpJsonMapper JSON = McpJsonDefaults.getMapper();
    static final List<String> UPSTREAM = List.of("python", "../python/server.py", "--port", "{port}");

    /** A play of a cassette; what it missed fails the test. */
    static final class Play implements AutoCloseable {
        final URI url;
        final String id;
        String outcome = "failed";

        Play(String cassette) throws Exception {
            var begun = control("POST", "", Map.of("cassette", cassette, "upstream", UPSTREAM));
            url = URI.create((String) begun.get("url"));
            id = (String) begun.get("id");
        }

        @Override
        public void close() throws Exception {
            var ended = control("DELETE", "/" + id, Map.of("outcome", outcome));
            for (Object problem : (List<?>) ended.get("problems")) {
                throw new AssertionError(problem);
            }
        }
    }

    static Map<?, ?> control(String method, String path, Map<?, ?> body) throws Exception {
        var plays = System.getenv("MRTR_CASSETTE_SERVE") + "/.mrtr/plays";
        var content = HttpRequest.BodyPublishers.ofString(JSON.writeValueAsString(body));
        var request = HttpRequest.newBuilder(URI.create(plays + path))
            .header("Content-Type", "application/json").method(method, content).build();
        var response = HttpClient.newHttpClient().send(request, BodyHandlers.ofString());
        if (response.statusCode() >= 300) {
            throw new AssertionError(response.body());
        }
        return JSON.readValue(response.body(), Map.class);
    }

    @Test
    void plan() throws Exception {
        try (var play = new Play("java-plan")) {
            assertEquals("accept fast", callForm(play.url));
            play.outcome = "passed";
        }
    }

    /** Calls a tool that asks for a form, and fills it in. */
    static String callForm(URI url) {
        var action = System.getenv().getOrDefault("ANSWER", "accept").toUpperCase();
        var answer = McpSchema.ElicitResult.builder(McpSchema.ElicitResult.Action.valueOf(action))
            .content(action.equals("ACCEPT") ? Map.of("name", "fast") : null).build();
        var transport = HttpClientStreamableHttpTransport
            .builder(url.resolve("/").toString()).endpoint(url.getPath()).build();
        try (var client = McpClient.sync(transport).elicitation(request -> answer).build()) {
            client.initialize();
            var request = McpSchema.CallToolRequest.builder("form").build();
            return ((McpSchema.TextContent) client.callTool(request).content().get(0)).text();
        }
    }
}
