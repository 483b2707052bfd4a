import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.server.McpServer;
import io.modelcontextprotocol.server.McpSyncServerExchange;
import io.modelcontextprotocol.server.transport.HttpServletStreamableServerTransportProvider;
import io.modelcontextprotocol.server.transport.StdioServerTransportProvider;
import io.modelcontextprotocol.spec.McpSchema;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.catalina.Context;
import org.apache.catalina.Wrapper;
import org.apache.catalina.startup.Tomcat;

/**
 * A server on the Java SDK: each of its tools asks the client something, and tells the answer.
 *
 * <pre>PlanServer --era 2025 (--port N | --stdio)</pre>
 */
public final class PlanServer {
    private static final McpSchema.ElicitRequest NAME = form("Which plan?", "name", "string");
    private static final McpSchema.ElicitRequest CONFIRM = form("Start it?", "confirm", "boolean");
    private static final McpSchema.ElicitRequest SIGNIN = McpSchema.ElicitUrlRequest
        .builder("Sign in", "https://example.com/auth", "signin-1").build();
    private static final McpSchema.CreateMessageRequest DRAFT = McpSchema.CreateMessageRequest
        .builder(List.of(McpSchema.SamplingMessage
            .builder(McpSchema.Role.USER, new McpSchema.TextContent("Write the plan")).build()), 100)
        .build();
    private static final Map<String, Function<McpSyncServerExchange, String>> TOOLS = Map.of(
        "add", client -> "3",
        "form", client -> spell(client.createElicitation(NAME)),
        "url", client -> spell(client.createElicitation(SIGNIN)),
        "sampling", client -> ((McpSchema.TextContent) client.createMessage(DRAFT).content()).text(),
        "roots", client -> client.listRoots().roots().stream()
            .map(McpSchema.Root::uri).collect(Collectors.joining(" ")),
        "rounds", client -> spell(client.createElicitation(NAME))
            + ", " + spell(client.createElicitation(CONFIRM)));

    private static McpSchema.ElicitRequest form(String message, String field, String kind) {
        Map<String, Object> schema = Map.of(
            "type", "object",
            "properties", Map.of(field, Map.of("type", kind)),
            "required", List.of(field));
        return McpSchema.ElicitFormRequest.builder(message, schema).build();
    }

    /** Tells a client's answer in words that are the same in all languages. */
    private static String spell(McpSchema.ElicitResult answer) {
        String action = answer.action().name().toLowerCase();
        Map<String, Object> content = answer.content() == null ? Map.of() : answer.content();
        return Stream.concat(Stream.of(action), content.values().stream().map(String::valueOf).sorted())
            .collect(Collectors.joining(" "));
    }

    private static void addTools(McpServer.SyncSpecification<?> server) {
        server.serverInfo("plans", "1.0.0")
            .capabilities(McpSchema.ServerCapabilities.builder().tools(false).build());
        TOOLS.forEach((name, ask) -> server.toolCall(
            McpSchema.Tool.builder(name, Map.of("type", "object")).build(),
            (client, request) -> McpSchema.CallToolResult.builder()
                .addTextContent(ask.apply(client)).build()));
    }

    public static void main(String[] arguments) throws Exception {
        List<String> words = Arrays.asList(arguments);
        if (words.contains("--stdio")) {
            McpServer.SyncSpecification<?> server =
                McpServer.sync(new StdioServerTransportProvider(McpJsonDefaults.getMapper()));
            addTools(server);
            server.build();
            return;
        }
        HttpServletStreamableServerTransportProvider servlet =
            HttpServletStreamableServerTransportProvider.builder().mcpEndpoint("/mcp").build();
        McpServer.SyncSpecification<?> server = McpServer.sync(servlet);
        addTools(server);
        server.build();
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(System.getProperty("java.io.tmpdir"));
        tomcat.setHostname("127.0.0.1");
        tomcat.setPort(Integer.parseInt(words.get(words.indexOf("--port") + 1)));
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        Context context = tomcat.addContext("", System.getProperty("java.io.tmpdir"));
        Wrapper wrapper = Tomcat.addServlet(context, "mcp", servlet);
        wrapper.setAsyncSupported(true);
        context.addServletMappingDecoded("/*", "mcp");
        tomcat.start();
        int port = tomcat.getConnector().getLocalPort();
        System.out.println("listening on http://127.0.0.1:" + port + "/mcp");
        tomcat.getServer().await();
    }
}
