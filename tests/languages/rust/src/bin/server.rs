//! A server on the Rust SDK: each of its tools asks the client something, and tells the answer.
//!
//!     server --era 2026 (--port N | --stdio)
//!
//! A client of 2026-07-28 is asked by the result of its call, one of before by pushed requests.
#![allow(deprecated)]

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::*,
    service::{RequestContext, ServiceError},
    transport::{
        stdio,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};
use serde_json::{Value, json};

const TOOLS: [&str; 6] = ["add", "form", "url", "sampling", "roots", "rounds"];

#[derive(Clone)]
struct Plans;

fn question(method: &str, params: Value) -> InputRequest {
    serde_json::from_value(json!({"method": method, "params": params})).unwrap()
}

fn form(message: &str, field: &str, kind: &str) -> InputRequest {
    let schema = json!({
        "type": "object", "properties": {field: {"type": kind}}, "required": [field],
    });
    let params = json!({"mode": "form", "message": message, "requestedSchema": schema});
    question("elicitation/create", params)
}

fn asked_by(tool: &str) -> InputRequest {
    match tool {
        "url" => question(
            "elicitation/create",
            json!({
                "mode": "url", "message": "Sign in",
                "url": "https://example.com/auth", "elicitationId": "signin-1",
            }),
        ),
        "sampling" => {
            let content = json!({"type": "text", "text": "Write the plan"});
            let messages = json!([{"role": "user", "content": content}]);
            question(
                "sampling/createMessage",
                json!({"messages": messages, "maxTokens": 100}),
            )
        }
        "roots" => question("roots/list", json!({})),
        "confirm" => form("Start it?", "confirm", "boolean"),
        _ => form("Which plan?", "name", "string"),
    }
}

/// Tells a client's answer in words that are the same in all languages.
fn spell(answer: &Value) -> String {
    if let Some(roots) = answer["roots"].as_array() {
        let uris = roots.iter().filter_map(|root| root["uri"].as_str());
        return uris.collect::<Vec<_>>().join(" ");
    }
    let Some(action) = answer["action"].as_str() else {
        return answer["content"]["text"]
            .as_str()
            .unwrap_or_default()
            .into();
    };
    let mut words = vec![action.to_string()];
    for value in answer["content"]
        .as_object()
        .into_iter()
        .flat_map(|content| content.values())
    {
        words.push(value.as_str().map_or(value.to_string(), str::to_string));
    }
    words.join(" ")
}

/// Asks while the call runs, as servers do before 2026-07-28.
async fn push(
    context: &RequestContext<RoleServer>,
    question: InputRequest,
) -> Result<String, ErrorData> {
    let client = &context.peer;
    let answer = match question {
        InputRequest::Elicitation(request) => client
            .create_elicitation(request.params)
            .await
            .map(|answer| json!(answer)),
        InputRequest::CreateMessage(request) => client
            .create_message(request.params)
            .await
            .map(|answer| json!(answer)),
        _ => client.list_roots().await.map(|answer| json!(answer)),
    };
    match answer {
        Ok(answer) => Ok(spell(&answer)),
        Err(ServiceError::McpError(refusal)) => Err(refusal),
        Err(failure) => Err(ErrorData::internal_error(failure.to_string(), None)),
    }
}

fn text(words: String) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(words)]).into()
}

fn ask(key: &str, question: InputRequest, state: Option<String>) -> CallToolResponse {
    let questions = InputRequests::from([(key.to_string(), question)]);
    InputRequiredResult::new(Some(questions), state).into()
}

/// Asks for a name, and then whether to start.
fn round(request: CallToolRequestParams) -> CallToolResponse {
    let answers = request.input_responses.unwrap_or_default();
    if let Some(started) = answers.get("confirm") {
        let state = request.request_state.unwrap_or_default();
        let named = state.trim_start_matches("named: ");
        return text(format!("{named}, {}", spell(started)));
    }
    match answers.get("name") {
        Some(named) => ask(
            "confirm",
            asked_by("confirm"),
            Some(format!("named: {}", spell(named))),
        ),
        None => ask("name", asked_by("name"), None),
    }
}

impl ServerHandler for Plans {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("plans", "1.0.0"))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut schema = JsonObject::new();
        schema.insert("type".into(), json!("object"));
        let tools = TOOLS.map(|name| Tool::new(name, name, schema.clone()));
        Ok(ListToolsResult::with_all_items(tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = request.name.to_string();
        let pushes = context.protocol_version() < Some(ProtocolVersion::V_2026_07_28);
        match tool.as_str() {
            "add" => Ok(text("3".into())),
            "rounds" if pushes => {
                let named = push(&context, asked_by("name")).await?;
                let started = push(&context, asked_by("confirm")).await?;
                Ok(text(format!("{named}, {started}")))
            }
            "rounds" => Ok(round(request)),
            _ if pushes => Ok(text(push(&context, asked_by(&tool)).await?)),
            _ => Ok(
                match request.input_responses.unwrap_or_default().get("answer") {
                    Some(answer) => text(spell(answer)),
                    None => ask("answer", asked_by(&tool), None),
                },
            ),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let Some(place) = words.iter().position(|word| word == "--port") else {
        Plans.serve(stdio()).await?.waiting().await?;
        return Ok(());
    };
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{}", words[place + 1])).await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    let service: StreamableHttpService<Plans, LocalSessionManager> = StreamableHttpService::new(
        || Ok(Plans),
        Default::default(),
        StreamableHttpServerConfig::default(),
    );
    let router = axum::Router::new().nest_service("/mcp", service);
    axum::serve(listener, router).await?;
    Ok(())
}
