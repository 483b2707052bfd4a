package languages

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var upstream = []string{"python", "../python/server.py", "--port", "{port}"}

// play begins a play that ends with the test; what it missed fails the test.
func play(t *testing.T, cassette string) string {
	plays := os.Getenv("MRTR_CASSETTE_SERVE") + "/.mrtr/plays"
	var begun struct{ ID, URL string }
	control(t, "POST", plays, map[string]any{"cassette": cassette, "upstream": upstream}, &begun)
	t.Cleanup(func() {
		outcome := "passed"
		if t.Failed() {
			outcome = "failed"
		}
		var ended struct{ Problems []string }
		control(t, "DELETE", plays+"/"+begun.ID, map[string]any{"outcome": outcome}, &ended)
		for _, problem := range ended.Problems {
			t.Error(problem)
		}
	})
	return begun.URL
}

func control(t *testing.T, method, url string, body, report any) {
	text, _ := json.Marshal(body)
	request, _ := http.NewRequest(method, url, bytes.NewReader(text))
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(response.Body)
	if response.StatusCode >= 300 || json.Unmarshal(answer, report) != nil {
		t.Fatalf("%s", answer)
	}
}

func TestPlan(t *testing.T) {
	url := play(t, "go-plan")
	said, err := callForm(t.Context(), url)
	if err != nil || said != "accept fast" {
		t.Error(said, err)
	}
}

// callForm calls a tool that asks for a form, and fills it in.
func callForm(ctx context.Context, url string) (string, error) {
	answer := &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "fast"}}
	answer.Action = cmp.Or(os.Getenv("ANSWER"), answer.Action)
	client := mcp.NewClient(&mcp.Implementation{Name: "tests", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return answer, nil
		},
	})
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		return "", err
	}
	defer session.Close()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "form"})
	if err != nil {
		return "", err
	}
	return result.Content[0].(*mcp.TextContent).Text, nil
}
