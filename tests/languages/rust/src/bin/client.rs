//! The Rust SDK's client: calls tools, answers what they ask, and prints a JSON line for each.
//!
//!     client --era 2026 --answer accept TARGET TOOL...
//!
//! TARGET is a URL, or a command as a JSON array of words.
#![allow(deprecated)]

use std::sync::{Arc, Mutex};

use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient,
    model::*,
    service::{RequestContext, RunningService, ServiceError},
    transport::{StreamableHttpClientTransport, TokioChildProcess},
};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

#[derive(Clone)]
struct User {
    action: ElicitationAction,
    version: ProtocolVersion,
    asked: Arc<Mutex<Vec<String>>>,
}

impl User {
    fn note(&self, words: String) {
        self.asked.lock().unwrap().push(words);
    }
}

fn value_of(field: &str) -> Value {
    match field {
        "confirm" => json!(true),
        _ => json!("fast"),
    }
}

impl ClientHandler for User {
    fn get_info(&self) -> ClientConfig {
        let kinds = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}});
        let capabilities = serde_json::from_value(kinds).unwrap();
        ClientConfig::new(capabilities, Implementation::new("client-rust", "1.0.0"))
            .with_protocol_version(self.version.clone())
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let result = ElicitResult::new(self.action.clone());
        match request {
            ElicitRequestParams::FormElicitationParams {
                message,
                requested_schema,
                ..
            } => {
                let fields: Vec<&String> = requested_schema.properties.keys().collect();
                let names: Vec<&str> = fields.iter().map(|field| field.as_str()).collect();
                self.note(format!("form: {message} {}", names.join(" ")));
                if self.action != ElicitationAction::Accept {
                    return Ok(result);
                }
                let content = names
                    .iter()
                    .map(|field| (field.to_string(), value_of(field)));
                Ok(result.with_content(Value::Object(content.collect())))
            }
            ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
                self.note(format!("url: {message} {url}"));
                Ok(result)
            }
            _ => Err(ErrorData::invalid_params("an unknown mode", None)),
        }
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let blocks = params.messages[0].content.clone().into_vec();
        let prompt = blocks[0].as_text().map(|block| block.text.clone());
        self.note(format!("sampling: {}", prompt.unwrap_or_default()));
        let words = SamplingMessage::assistant_text("Two steps");
        Ok(CreateMessageResult::new(words, "stub".into()))
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        let root = Root::new("file:///workspace").with_name("workspace");
        Ok(ListRootsResult::new(vec![root]))
    }
}

async fn connect(user: User, target: &str) -> Result<RunningService<RoleClient, User>, Failure> {
    let mut lifecycle = ClientLifecycleMode::Initialize;
    if user.version == ProtocolVersion::V_2026_07_28 {
        let preferred_versions = vec![user.version.clone()];
        lifecycle = ClientLifecycleMode::Discover { preferred_versions };
    }
    if !target.starts_with('[') {
        let transport = StreamableHttpClientTransport::from_uri(target);
        return Ok(user.serve_with_lifecycle(transport, lifecycle).await?);
    }
    let words: Vec<String> = serde_json::from_str(target)?;
    let mut command = tokio::process::Command::new(&words[0]);
    command.args(&words[1..]);
    Ok(user
        .serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle)
        .await?)
}

async fn call(session: &RunningService<RoleClient, User>, user: &User, tool: &str) -> Value {
    user.asked.lock().unwrap().clear();
    let request = CallToolRequestParams::new(tool.to_string()).with_arguments(JsonObject::new());
    let (result, error) = match session.call_tool(request).await {
        Ok(answer) => {
            let blocks = answer.content.iter().filter_map(|block| block.as_text());
            (
                blocks.map(|block| block.text.as_str()).collect::<String>(),
                String::new(),
            )
        }
        Err(ServiceError::McpError(refusal)) => (String::new(), refusal.message.to_string()),
        Err(failure) => (String::new(), failure.to_string()),
    };
    let asked = user.asked.lock().unwrap().clone();
    json!({"tool": tool, "asked": asked, "result": result, "error": error})
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().collect();
    let action = serde_json::from_value(json!(words[4]))?;
    let version = match words[2].as_str() {
        "2025" => ProtocolVersion::V_2025_11_25,
        _ => ProtocolVersion::V_2026_07_28,
    };
    let user = User {
        action,
        version,
        asked: Arc::default(),
    };
    let session = connect(user.clone(), &words[5]).await?;
    session.list_tools(None).await?;
    for tool in &words[6..] {
        println!("{}", call(&session, &user, tool).await);
    }
    session.cancel().await?;
    Ok(())
}
