// A server on the Go SDK that asks before it acts, as the SDK's documentation shows it.
//
//	probed [--port N] [--pushed]
//
// In sessions of the earlier revision it pushes its questions while a call waits.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"sort"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type properties = map[string]*jsonschema.Schema

func ask(key, message, state string, fields properties) *mcp.CallToolResult {
	required := []string{}
	for field := range fields {
		required = append(required, field)
	}
	sort.Strings(required)
	schema := &jsonschema.Schema{Type: "object", Properties: fields, Required: required}
	form := &mcp.ElicitParams{Mode: "form", Message: message, RequestedSchema: schema}
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{key: form}, RequestState: state}
}

func text(words string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: words}}}
}

// entered returns the fields of an accepted form, or nil.
func entered(request *mcp.CallToolRequest, key string) map[string]any {
	answer, isForm := request.Params.InputResponses[key].(*mcp.ElicitResult)
	if !isForm || answer.Action != "accept" {
		return nil
	}
	return answer.Content
}

func deploy(request *mcp.CallToolRequest, env string) *mcp.CallToolResult {
	if confirmed, _ := entered(request, "confirm")["confirm"].(bool); confirmed {
		return text("Deployed to " + env)
	}
	return ask("confirm", "Deploy to "+env+"?", "", properties{"confirm": {Type: "boolean"}})
}

func wipe(request *mcp.CallToolRequest, env string) *mcp.CallToolResult {
	state := struct {
		Step  string
		Round int
	}{}
	json.Unmarshal([]byte(request.Params.RequestState), &state)
	if state.Step == "confirmed" {
		if chosen := entered(request, "scope"); chosen != nil {
			return text(fmt.Sprintf("Wiped %v of %s", chosen["scope"], env))
		}
	} else if confirmed, _ := entered(request, "confirm")["confirm"].(bool); !confirmed {
		return ask("confirm", "Wipe "+env+"?", "", properties{"confirm": {Type: "boolean"}})
	}
	proved := `{"step":"confirmed","round":1}`
	return ask("scope", "Which scope of "+env+"?", proved, properties{"scope": {Type: "string"}})
}

func resize(request *mcp.CallToolRequest, group string) *mcp.CallToolResult {
	if wanted := entered(request, "wanted"); wanted != nil {
		return text(fmt.Sprintf("%s has %v, %v", group, wanted["size"], wanted["kind"]))
	}
	least, most := 1.0, 10.0
	return ask("wanted", "How large is "+group+"?", "", properties{
		"size": {Type: "integer", Minimum: &least, Maximum: &most},
		"kind": {Type: "string", Enum: []any{"small", "large"}},
	})
}

// pushed asks what a tool requires by requests, until it requires nothing.
func pushed(ctx context.Context, request *mcp.CallToolRequest, call func() *mcp.CallToolResult) (*mcp.CallToolResult, error) {
	result := call()
	for ; result.InputRequests != nil; result = call() {
		responses := mcp.InputResponseMap{}
		for key, question := range result.InputRequests {
			answer, err := request.Session.Elicit(ctx, question.(*mcp.ElicitParams))
			if err != nil {
				return nil, err
			}
			responses[key] = answer
		}
		request.Params.InputResponses = responses
		request.Params.RequestState = result.RequestState
	}
	return result, nil
}

func main() {
	port := flag.Int("port", 0, "where it listens")
	isPushed := flag.Bool("pushed", false, "serve the earlier revision")
	flag.Parse()
	server := mcp.NewServer(&mcp.Implementation{Name: "probed", Version: "1.0.0"}, nil)
	tools := map[string]func(*mcp.CallToolRequest, string) *mcp.CallToolResult{
		"deploy": deploy, "wipe": wipe, "resize": resize,
	}
	for name, tool := range tools {
		server.AddTool(
			&mcp.Tool{Name: name, InputSchema: &jsonschema.Schema{Type: "object"}},
			func(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				arguments := struct{ Env, Group string }{}
				if err := json.Unmarshal(request.Params.Arguments, &arguments); err != nil {
					return nil, err
				}
				call := func() *mcp.CallToolResult { return tool(request, arguments.Env+arguments.Group) }
				if *isPushed {
					return pushed(ctx, request, call)
				}
				return call(), nil
			})
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s/mcp\n", listener.Addr())
	options := &mcp.StreamableHTTPOptions{Stateless: !*isPushed}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options)
	log.Fatal(http.Serve(listener, handler))
}
