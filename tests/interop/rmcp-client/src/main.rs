//! Test host: rmcp's client. Lists all tools, makes the planned calls, prints one JSON object.
//!
//! Usage: `onegate-interop-rmcp ERA PLAN COMMAND [ARG…]`, with ERA `legacy` or `auto`. Knows nothing of the gateway; run by
//! `interop.py`. It is its own package so that `cargo test` of the product neither builds nor locks rmcp.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rmcp::ServiceError;
use rmcp::model::{CallToolRequestParams, JsonObject, ProtocolVersion};
use rmcp::service::{ClientCacheConfig, ClientLifecycleMode, ClientServiceExt};
use rmcp::transport::TokioChildProcess;
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let era = args.next().context("no era given")?;
    let plan = args.next().context("no plan given")?;
    let plan: Value = serde_json::from_str(&std::fs::read_to_string(plan)?)?;
    let awaited: Vec<String> = serde_json::from_value(plan["awaited"].clone())?;
    let calls = plan["calls"].as_array().context("the plan has no calls")?;
    let mut command = tokio::process::Command::new(args.next().context("no command given")?);
    command.args(args);

    let lifecycle = if era == "auto" {
        ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        }
    } else {
        ClientLifecycleMode::Initialize
    };
    let client = ().serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle).await?;
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
    println!("{}", json!({"version": version, "tools": tools, "results": results}));
    Ok(())
}
