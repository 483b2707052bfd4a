use std::env::var;

use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient,
    model::*,
    service::{RequestContext, ServiceError},
    transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};

/// A play of a cassette; what it missed fails the test when it ends.
struct Play {
    id: String,
    url: String,
}

impl Play {
    async fn begin(cassette: &str) -> Play {
        let upstream = ["python", "../python/server.py", "--port", "{port}"];
        let wanted = json!({"cassette": cassette, "upstream": upstream});
        let begun = control(reqwest::Method::POST, "", wanted).await;
        let word = |name: &str| begun[name].as_str().unwrap().to_string();
        Play {
            id: word("id"),
            url: word("url"),
        }
    }

    async fn end(self, is_passed: bool) {
        let outcome = json!({"outcome": if is_passed { "passed" } else { "failed" }});
        let ended = control(reqwest::Method::DELETE, &format!("/{}", self.id), outcome).await;
        for problem in ended["problems"].as_array().unwrap() {
            panic!("{}", problem.as_str().unwrap());
        }
    }
}

async fn control(method: reqwest::Method, path: &str, body: Value) -> Value {
    let url = var("MRTR_CASSETTE_SERVE").unwrap() + "/.mrtr/plays" + path;
    let request = reqwest::Client::new().request(method, url).json(&body);
    let response = request.send().await.unwrap();
    let is_good = response.status().is_success();
    let report: Value = response.json().await.unwrap();
    assert!(is_good, "{report}");
    report
}

#[tokio::test]
async fn plan() {
    let play = Play::begin("rust-plan").await;
    let said = call_form(&play.url).await;
    let is_right = said.as_ref().is_ok_and(|said| said == "accept fast");
    play.end(is_right).await;
    assert!(is_right, "{said:?}");
}

struct User;

impl ClientHandler for User {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("tests", "1"))
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if var("ANSWER").is_ok() {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        }
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({"name": "fast"})))
    }
}

/// Calls a tool that asks for a form, which `User` fills in.
async fn call_form(url: &str) -> Result<String, ServiceError> {
    let versions = vec![ProtocolVersion::V_2026_07_28];
    let lifecycle = ClientLifecycleMode::Discover {
        preferred_versions: versions,
    };
    let transport = StreamableHttpClientTransport::from_uri(url);
    let client = User
        .serve_with_lifecycle(transport, lifecycle)
        .await
        .unwrap();
    let result = client.call_tool(CallToolRequestParams::new("form")).await?;
    Ok(result.content[0].as_text().unwrap().text.clone())
}
