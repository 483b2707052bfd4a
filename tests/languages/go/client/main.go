// The Go SDK's client: calls tools, answers what they ask, and prints a JSON line for each.
//
//	client --era 2026 --answer accept TARGET TOOL...
//
// TARGET is a URL, or a command as a JSON array of words.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"os"
	"os/exec"
	"sort"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var (
	versions = map[string]string{"2025": "2025-11-25", "2026": "2026-07-28"}
	values   = map[string]any{"name": "fast", "confirm": true}
)

// Seen is what one call showed to its caller.
type Seen struct {
	Tool   string   `json:"tool"`
	Asked  []string `json:"asked"`
	Result string   `json:"result"`
	Error  string   `json:"error"`
}

// User answers questions, and remembers them.
type User struct {
	action string
	asked  []string
}

func (user *User) elicit(_ context.Context, request *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	params := request.Params
	if params.Mode == "url" {
		user.asked = append(user.asked, "url: "+params.Message+" "+params.URL)
		return &mcp.ElicitResult{Action: user.action}, nil
	}
	schema, _ := params.RequestedSchema.(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	fields := []string{}
	content := map[string]any{}
	for field := range properties {
		fields = append(fields, field)
		content[field] = values[field]
	}
	sort.Strings(fields)
	user.asked = append(user.asked, "form: "+params.Message+" "+strings.Join(fields, " "))
	if user.action != "accept" {
		return &mcp.ElicitResult{Action: user.action}, nil
	}
	return &mcp.ElicitResult{Action: "accept", Content: content}, nil
}

func (user *User) sample(_ context.Context, request *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	prompt := request.Params.Messages[0].Content.(*mcp.TextContent).Text
	user.asked = append(user.asked, "sampling: "+prompt)
	words := &mcp.TextContent{Text: "Two steps"}
	return &mcp.CreateMessageResult{Role: "assistant", Model: "stub", Content: words}, nil
}

func (user *User) call(ctx context.Context, session *mcp.ClientSession, tool string) Seen {
	user.asked = []string{}
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{}})
	seen := Seen{Tool: tool, Asked: user.asked}
	var refusal *jsonrpc.Error
	switch {
	case errors.As(err, &refusal):
		seen.Error = refusal.Message
	case err != nil:
		seen.Error = err.Error()
	default:
		for _, block := range result.Content {
			seen.Result += block.(*mcp.TextContent).Text
		}
	}
	return seen
}

// transport reaches a URL, or a server that a command starts.
func transport(target string) mcp.Transport {
	var command []string
	if json.Unmarshal([]byte(target), &command) != nil {
		return &mcp.StreamableClientTransport{Endpoint: target}
	}
	server := exec.Command(command[0], command[1:]...)
	server.Stderr = os.Stderr
	return &mcp.CommandTransport{Command: server}
}

func main() {
	era := flag.String("era", "2026", "2025 or 2026")
	action := flag.String("answer", "accept", "accept, decline or cancel")
	flag.Parse()
	user := &User{action: *action}
	options := &mcp.ClientOptions{
		ElicitationHandler:   user.elicit,
		CreateMessageHandler: user.sample,
		Capabilities: &mcp.ClientCapabilities{
			RootsV2: &mcp.RootCapabilities{},
			Elicitation: &mcp.ElicitationCapabilities{
				Form: &mcp.FormElicitationCapabilities{},
				URL:  &mcp.URLElicitationCapabilities{},
			},
		},
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "client-go", Version: "1.0.0"}, options)
	client.AddRoots(&mcp.Root{URI: "file:///workspace", Name: "workspace"})
	ctx := context.Background()
	version := &mcp.ClientSessionOptions{ProtocolVersion: versions[*era]}
	session, err := client.Connect(ctx, transport(flag.Arg(0)), version)
	if err != nil {
		log.Fatal(err)
	}
	if negotiated := session.InitializeResult().ProtocolVersion; negotiated != versions[*era] {
		log.Fatalf("negotiated %s", negotiated)
	}
	if _, err := session.ListTools(ctx, nil); err != nil {
		log.Fatal(err)
	}
	lines := json.NewEncoder(os.Stdout)
	for _, tool := range flag.Args()[1:] {
		if err := lines.Encode(user.call(ctx, session, tool)); err != nil {
			log.Fatal(err)
		}
	}
	if err := session.Close(); err != nil {
		log.Print(err)
	}
}
