//! Test host: rmcp's client. Lists all tools, makes the planned calls, prints one JSON object.
//!
//! Usage: `onegate-interop-rmcp ERA PLAN COMMAND [ARG…]` or `… ERA PLAN URL`, with ERA `legacy` or `auto`. With `asked` in the plan it can be asked
//! for a form, a model and roots, and prints what it was asked. Knows nothing of the gateway; run by
//! `interop.py`. It is its own package so that `cargo test` of the product neither builds nor locks rmcp.

#![expect(deprecated, reason = "rmcp marks sampling and roots so; they are in all revisions")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rmcp::model::{
    CallToolRequestParams, ClientInfo, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ElicitationAction, ErrorData, JsonObject, ListRootsResult, ProtocolVersion,
};
use rmcp::service::{ClientCacheConfig, ClientLifecycleMode, ClientServiceExt, RequestContext, RoleClient};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ServiceError};
use serde_json::{Value, json};

type Asked = Arc<Mutex<Vec<Value>>>;

/// What it says when it is asked, and what it was asked.
struct Host {
    can: bool,
    asked: Asked,
}

impl Host {
    fn note(&self, what: &str, params: Value) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(json!([what, params]));
    }
}

fn untyped(error: serde_json::Error) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

impl ClientHandler for Host {
    fn get_info(&self) -> ClientInfo {
        let mut info = ClientInfo::default();
        if self.can {
            let can = json!({"elicitation": {}, "roots": {}, "sampling": {}});
            info.capabilities = serde_json::from_value(can).unwrap_or_default();
        }
        info
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.note("elicitation", serde_json::to_value(request).unwrap_or_default()["message"].take());
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({"name": "Ada"})))
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let mut params = serde_json::to_value(params).unwrap_or_default();
        self.note("sampling", params["messages"][0]["content"]["text"].take());
        let said = json!({"role": "assistant", "content": {"type": "text", "text": "sampled"}, "model": "none"});
        serde_json::from_value(said).map_err(untyped)
    }

    async fn list_roots(&self, _context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        self.note("roots", json!(""));
        serde_json::from_value(json!({"roots": [{"uri": "file:///srv/docs", "name": "docs"}]})).map_err(untyped)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let era = args.next().context("no era given")?;
    let plan = args.next().context("no plan given")?;
    let plan: Value = serde_json::from_str(&std::fs::read_to_string(plan)?)?;
    let awaited: Vec<String> = serde_json::from_value(plan["awaited"].clone())?;
    let calls = plan["calls"].as_array().context("the plan has no calls")?;
    let target = args.next().context("no command given")?;

    let lifecycle = if era == "auto" {
        ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        }
    } else {
        ClientLifecycleMode::Initialize
    };
    let asked = Asked::default();
    let host = Host { can: plan["asked"] == true, asked: Arc::clone(&asked) };
    let client = if target.starts_with("http://") {
        host.serve_with_lifecycle(StreamableHttpClientTransport::from_uri(target), lifecycle).await?
    } else {
        let mut command = tokio::process::Command::new(target);
        command.args(args);
        host.serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle).await?
    };
    let version = client.peer_info().map(|info| info.protocol_version.to_string());
    // A server that is slow to start comes into the list later; a kept list would not show it.
    client.set_response_cache_config(ClientCacheConfig::disabled()).await;
    let until = Instant::now() + Duration::from_secs(30);
    let tools = loop {
        let listed = client.list_all_tools().await?;
        let tools: Vec<String> = listed.into_iter().map(|tool| tool.name.into_owned()).collect();
        if awaited.iter().all(|name| tools.contains(name)) || Instant::now() > until {
            break tools;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    };

    let mut results = Vec::new();
    for call in calls {
        let name = call["name"].as_str().context("a planned call has no name")?.to_owned();
        let arguments: JsonObject = serde_json::from_value(call["arguments"].clone())?;
        results.push(match client.call_tool(CallToolRequestParams::new(name).with_arguments(arguments)).await {
            Ok(result) => serde_json::to_value(result)?,
            Err(ServiceError::McpError(error)) => {
                json!({"error": {"code": error.code.0, "message": error.message}})
            }
            Err(error) => return Err(error.into()),
        });
    }
    client.cancel().await?;
    let asked = std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
    println!("{}", json!({"version": version, "tools": tools, "results": results, "asked": asked}));
    Ok(())
}
