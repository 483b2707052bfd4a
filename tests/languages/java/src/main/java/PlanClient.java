import io.modelcontextprotocol.client.McpClient;
import io.modelcontextprotocol.client.McpSyncClient;
import io.modelcontextprotocol.client.transport.HttpClientStreamableHttpTransport;
import io.modelcontextprotocol.client.transport.ServerParameters;
import io.modelcontextprotocol.client.transport.StdioClientTransport;
import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.json.McpJsonMapper;
import io.modelcontextprotocol.spec.McpClientTransport;
import io.modelcontextprotocol.spec.McpError;
import io.modelcontextprotocol.spec.McpSchema;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/**
 * The Java SDK's client: calls tools, answers what they ask, and prints a JSON line for each.
 *
 * <pre>PlanClient --era 2025 --answer accept TARGET TOOL...</pre>
 *
 * TARGET is a URL, or a command as a JSON array of words.
 */
public final class PlanClient {
    private static final McpJsonMapper JSON = McpJsonDefaults.getMapper();
    private static final Map<String, Object> VALUES = Map.of("name", "fast", "confirm", true);

    private final McpSchema.ElicitResult.Action action;
    private final List<String> asked = new ArrayList<>();

    private PlanClient(String answer) {
        action = McpSchema.ElicitResult.Action.valueOf(answer.toUpperCase());
    }

    private McpSchema.ElicitResult fill(McpSchema.ElicitFormRequest request) {
        Map<?, ?> properties = (Map<?, ?>) request.requestedSchema().get("properties");
        Map<String, Object> content = new LinkedHashMap<>();
        StringBuilder words = new StringBuilder("form: " + request.message());
        for (Object field : new TreeSet<>(properties.keySet())) {
            words.append(' ').append(field);
            content.put((String) field, VALUES.get(field));
        }
        asked.add(words.toString());
        McpSchema.ElicitResult.Builder result = McpSchema.ElicitResult.builder(action);
        if (action == McpSchema.ElicitResult.Action.ACCEPT) {
            result.content(content);
        }
        return result.build();
    }

    private McpSchema.ElicitResult open(McpSchema.ElicitUrlRequest request) {
        asked.add("url: " + request.message() + " " + request.url());
        return McpSchema.ElicitResult.builder(action).build();
    }

    private McpSchema.CreateMessageResult sample(McpSchema.CreateMessageRequest request) {
        McpSchema.Content prompt = request.messages().get(0).content();
        asked.add("sampling: " + ((McpSchema.TextContent) prompt).text());
        // The other SDKs give no reason; this one gives one unless it is told not to.
        return McpSchema.CreateMessageResult
            .builder(McpSchema.Role.ASSISTANT, "Two steps", "stub").stopReason(null).build();
    }

    private Map<String, Object> call(McpSyncClient client, String tool) {
        asked.clear();
        StringBuilder result = new StringBuilder();
        String error = "";
        try {
            McpSchema.CallToolRequest request =
                McpSchema.CallToolRequest.builder(tool).arguments(Map.of()).build();
            for (McpSchema.Content block : client.callTool(request).content()) {
                result.append(((McpSchema.TextContent) block).text());
            }
        } catch (McpError refusal) {
            error = refusal.getMessage();
        }
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("tool", tool);
        seen.put("asked", asked);
        seen.put("result", result.toString());
        seen.put("error", error);
        return seen;
    }

    private static McpClientTransport transportTo(String target) throws Exception {
        if (!target.startsWith("[")) {
            URI url = URI.create(target);
            String origin = url.getScheme() + "://" + url.getAuthority();
            return HttpClientStreamableHttpTransport.builder(origin)
                .endpoint(url.getPath()).build();
        }
        List<?> words = JSON.readValue(target, List.class);
        List<String> command = words.stream().map(String::valueOf).toList();
        ServerParameters server = ServerParameters.builder(command.get(0))
            .args(command.subList(1, command.size())).build();
        StdioClientTransport transport = new StdioClientTransport(server, JSON);
        transport.setStdErrorHandler(System.err::println);
        return transport;
    }

    public static void main(String[] arguments) throws Exception {
        PlanClient user = new PlanClient(arguments[3]);
        McpSyncClient client = McpClient.sync(transportTo(arguments[4]))
            .clientInfo(new McpSchema.Implementation("client-java", "1.0.0"))
            .capabilities(McpSchema.ClientCapabilities.builder()
                .roots(false).sampling().elicitation(true, true).build())
            .roots(McpSchema.Root.builder("file:///workspace").name("workspace").build())
            .elicitation(user::fill)
            .urlElicitation(user::open)
            .sampling(user::sample)
            .build();
        try (client) {
            String version = client.initialize().protocolVersion();
            if (!version.startsWith(arguments[1])) {
                throw new IllegalStateException("negotiated " + version);
            }
            client.listTools();
            for (String tool : Arrays.asList(arguments).subList(5, arguments.length)) {
                System.out.println(JSON.writeValueAsString(user.call(client, tool)));
            }
        }
    }
}
