//! A server on the Rust SDK that asks before it acts, as the SDK's documentation shows it.
//!
//!     probed [--port N]

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::*,
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde_json::{Map, Value, json};

const TOOLS: [&str; 3] = ["deploy", "wipe", "resize"];

#[derive(Clone)]
struct Probed;

fn ask(key: &str, message: String, fields: Value, state: Option<String>) -> CallToolResponse {
    let required: Vec<&String> = fields.as_object().unwrap().keys().collect();
    let schema = json!({"type": "object", "properties": fields, "required": required});
    let params = json!({"mode": "form", "message": message, "requestedSchema": schema});
    let form = json!({"method": "elicitation/create", "params": params});
    let question: InputRequest = serde_json::from_value(form).unwrap();
    let questions = InputRequests::from([(key.to_string(), question)]);
    InputRequiredResult::new(Some(questions), state).into()
}

fn text(words: String) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(words)]).into()
}

/// Returns the fields of an accepted form.
fn entered(request: &CallToolRequestParams, key: &str) -> Option<Map<String, Value>> {
    let answer = json!(request.input_responses.as_ref()?.get(key)?);
    if answer["action"] != "accept" {
        return None;
    }
    answer["content"].as_object().cloned()
}

fn is_confirmed(request: &CallToolRequestParams) -> bool {
    entered(request, "confirm").is_some_and(|content| content.get("confirm") == Some(&json!(true)))
}

/// Returns a value as it is shown: a text without quotes.
fn shown(content: &Map<String, Value>, field: &str) -> String {
    let value = content.get(field).cloned().unwrap_or_default();
    value.as_str().map_or(value.to_string(), str::to_string)
}

fn deploy(request: &CallToolRequestParams, env: &str) -> CallToolResponse {
    if is_confirmed(request) {
        return text(format!("Deployed to {env}"));
    }
    let fields = json!({"confirm": {"type": "boolean"}});
    ask("confirm", format!("Deploy to {env}?"), fields, None)
}

fn wipe(request: &CallToolRequestParams, env: &str) -> CallToolResponse {
    let state = request.request_state.as_deref().unwrap_or("null");
    let proved: Value = serde_json::from_str(state).unwrap_or_default();
    if proved["step"] == "confirmed" {
        if let Some(chosen) = entered(request, "scope") {
            return text(format!("Wiped {} of {env}", shown(&chosen, "scope")));
        }
    } else if !is_confirmed(request) {
        let fields = json!({"confirm": {"type": "boolean"}});
        return ask("confirm", format!("Wipe {env}?"), fields, None);
    }
    let proved = json!({"step": "confirmed", "round": 1}).to_string();
    let fields = json!({"scope": {"type": "string"}});
    ask(
        "scope",
        format!("Which scope of {env}?"),
        fields,
        Some(proved),
    )
}

fn resize(request: &CallToolRequestParams, group: &str) -> CallToolResponse {
    if let Some(wanted) = entered(request, "wanted") {
        let (size, kind) = (shown(&wanted, "size"), shown(&wanted, "kind"));
        return text(format!("{group} has {size}, {kind}"));
    }
    let fields = json!({
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "kind": {"type": "string", "enum": ["small", "large"]},
    });
    ask("wanted", format!("How large is {group}?"), fields, None)
}

impl ServerHandler for Probed {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("probed", "1.0.0"))
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
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.clone().unwrap_or_default();
        Ok(match &*request.name {
            "deploy" => deploy(&request, &shown(&arguments, "env")),
            "wipe" => wipe(&request, &shown(&arguments, "env")),
            _ => resize(&request, &shown(&arguments, "group")),
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let place = words.iter().position(|word| word == "--port");
    let port = place.map_or("0", |place| &words[place + 1]);
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    let service: StreamableHttpService<Probed, LocalSessionManager> = StreamableHttpService::new(
        || Ok(Probed),
        Default::default(),
        StreamableHttpServerConfig::default(),
    );
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}
