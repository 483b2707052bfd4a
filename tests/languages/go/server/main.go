// A server on the Go SDK: each of its tools asks the client something, and tells the answer.
//
//	server [--era 2026] [--port N | --stdio]
//
// A client of 2026-07-28 is asked by the result of its call, one of before by pushed requests.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func form(message, field, kind string) *mcp.ElicitParams {
	schema := &jsonschema.Schema{
		Type:       "object",
		Properties: map[string]*jsonschema.Schema{field: {Type: kind}},
		Required:   []string{field},
	}
	return &mcp.ElicitParams{Mode: "form", Message: message, RequestedSchema: schema}
}

var (
	name    = form("Which plan?", "name", "string")
	confirm = form("Start it?", "confirm", "boolean")
	signin  = &mcp.ElicitParams{
		Mode: "url", Message: "Sign in", URL: "https://example.com/auth", ElicitationID: "signin-1",
	}
	draft = &mcp.CreateMessageParams{
		MaxTokens: 100,
		Messages:  []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "Write the plan"}}},
	}
)

func text(words string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: words}}}
}

// spell tells a client's answer in words that are the same in all languages.
func spell(answer mcp.InputResponse) string {
	words := []string{}
	switch answer := answer.(type) {
	case *mcp.ElicitResult:
		for _, value := range answer.Content {
			words = append(words, fmt.Sprint(value))
		}
		sort.Strings(words)
		words = append([]string{answer.Action}, words...)
	case *mcp.CreateMessageWithToolsResult:
		for _, block := range answer.Content {
			words = append(words, block.(*mcp.TextContent).Text)
		}
	case *mcp.ListRootsResult:
		for _, root := range answer.Roots {
			words = append(words, root.URI)
		}
	}
	return strings.Join(words, " ")
}

// asks makes a tool of one question; the SDK pushes it to a client of the 2025 era.
func asks(question mcp.InputRequest) mcp.ToolHandler {
	return func(_ context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, isAnswered := request.Params.InputResponses["answer"]
		if !isAnswered {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"answer": question}}, nil
		}
		return text(spell(answer)), nil
	}
}

// rounds asks for a name, and then whether to start.
func rounds(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if version := request.Session.InitializeParams().ProtocolVersion; version < "2026" {
		return pushedRounds(ctx, request.Session)
	}
	answers := request.Params.InputResponses
	if started, isAnswered := answers["confirm"]; isAnswered {
		named := strings.TrimPrefix(request.Params.RequestState, "named: ")
		return text(named + ", " + spell(started)), nil
	}
	if named, isAnswered := answers["name"]; isAnswered {
		questions := mcp.InputRequestMap{"confirm": confirm}
		return &mcp.CallToolResult{InputRequests: questions, RequestState: "named: " + spell(named)}, nil
	}
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"name": name}}, nil
}

func pushedRounds(ctx context.Context, session *mcp.ServerSession) (*mcp.CallToolResult, error) {
	named, err := session.Elicit(ctx, name)
	if err != nil {
		return nil, err
	}
	started, err := session.Elicit(ctx, confirm)
	if err != nil {
		return nil, err
	}
	return text(spell(named) + ", " + spell(started)), nil
}

func add(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return text("3"), nil
}

func main() {
	era := flag.String("era", "2026", "2025 or 2026")
	port := flag.Int("port", 0, "where it listens")
	isPiped := flag.Bool("stdio", false, "serve on pipes")
	flag.Parse()
	server := mcp.NewServer(&mcp.Implementation{Name: "plans", Version: "1.0.0"}, nil)
	tools := map[string]mcp.ToolHandler{
		"add": add, "form": asks(name), "url": asks(signin), "sampling": asks(draft),
		"roots": asks(&mcp.ListRootsParams{}), "rounds": rounds,
	}
	for tool, handler := range tools {
		schema := &jsonschema.Schema{Type: "object"}
		server.AddTool(&mcp.Tool{Name: tool, InputSchema: schema}, handler)
	}
	if *isPiped {
		if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			log.Print(err)
		}
		return
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s/mcp\n", listener.Addr())
	// The SDK serves 2026-07-28 over HTTP only without sessions, and pushes only with them.
	options := &mcp.StreamableHTTPOptions{Stateless: *era == "2026"}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options)
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM, syscall.SIGINT)
	go func() { log.Fatal(http.Serve(listener, handler)) }()
	<-stopped
}
