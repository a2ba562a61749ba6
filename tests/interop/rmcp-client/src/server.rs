//! Test server: rmcp's server over stdio, in one era.
//!
//! Usage: `onegate-interop-rmcp-server ERA`, with ERA `legacy` or `modern`. Its tools: `echo`, and `ask`, which asks its
//! user for a name and says it: by a request in the legacy era, by a result in the modern one. Run by `interop.py`.

use std::borrow::Cow;
use std::sync::Arc;

use anyhow::{Context, Result};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequest, ElicitRequestParams,
    ErrorData, InputRequest, InputRequests, InputRequiredResult, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ServerCapabilities, ServerInfo, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ServerHandler, ServiceExt};
use serde_json::{Value, json};

struct Server {
    modern: bool,
}

const LEGACY: &[ProtocolVersion] = &[ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2025_06_18];
const MODERN: &[ProtocolVersion] = &[ProtocolVersion::V_2026_07_28];

fn question() -> Result<ElicitRequestParams, ErrorData> {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let schema = serde_json::from_value(schema).map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "Who are you?".to_owned(),
        requested_schema: schema,
    })
}

fn said(name: Option<&Value>) -> CallToolResult {
    let name = name.and_then(Value::as_str).unwrap_or("nobody");
    CallToolResult::success(vec![ContentBlock::text(format!("Hello, {name}"))])
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerInfo {
        let mut info = ServerInfo::new(ServerCapabilities::builder().enable_tools().build());
        info.protocol_version = self.supported_protocol_versions()[0].clone();
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(if self.modern { MODERN } else { LEGACY })
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        let schema = Arc::new(schema.as_object().cloned().unwrap_or_default());
        let tools = ["echo", "ask"].map(|name| Tool::new(name, format!("{name} of rmcp"), Arc::clone(&schema)));
        Ok(ListToolsResult::with_all_items(tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name == "echo" {
            let text = request.arguments.as_ref().and_then(|arguments| arguments.get("text")).and_then(Value::as_str);
            let text = ContentBlock::text(text.unwrap_or_default().to_owned());
            return Ok(CallToolResult::success(vec![text]).into());
        }
        if !self.modern {
            let answer = context.peer.create_elicitation(question()?).await;
            let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
            return Ok(said(answer.content.as_ref().and_then(|content| content.get("name"))).into());
        }
        if request.request_state.as_deref() == Some("asked") {
            let responses = serde_json::to_value(&request.input_responses).unwrap_or_default();
            return Ok(said(responses.pointer("/who/content/name")).into());
        }
        let mut requests = InputRequests::new();
        requests.insert("who".to_owned(), InputRequest::Elicitation(ElicitRequest::new(question()?)));
        Ok(InputRequiredResult::new(Some(requests), Some("asked".to_owned())).into())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let era = std::env::args().nth(1).context("no era given")?;
    let service = Server { modern: era == "modern" }.serve(rmcp::transport::stdio()).await?;
    service.waiting().await?;
    Ok(())
}
