//! Calls of the MCP server's tools: the use cases of the REST routes, answered as tool results.

use std::sync::Arc;

use http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use turnpike_app::limits::LimitClass;
use turnpike_app::tokens::TokenScope;
use turnpike_app::tools::ToolCaller;
use turnpike_app::{Actor, ActorCredential, AppError, CallContext};
use turnpike_core::access::{AgentScope, Scope};
use turnpike_core::errors::ErrorCode;

use super::tools::{AgentTool, INSTRUCTIONS, hint};
use crate::http::App;
use crate::http::answer::tool_view;
use crate::http::caller::{checked_key, sees_cost};
use crate::http::problem::members;
use crate::http::routes::{balance_members, result_view};

/// Longest result that a call shows at once, and longest part of a longer one, in bytes.
const MAX_INLINE_RESULT: usize = 65_536;

/// The tools, for whoever a request comes from.
#[derive(Clone)]
pub(super) struct AgentTools {
    app: Arc<App>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Execute {
    slug: String,
    #[serde(default)]
    args: Map<String, Value>,
    idempotency_key: String,
    approval_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GetResult {
    call_id: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

impl AgentTools {
    pub(super) const fn new(app: Arc<App>) -> Self {
        Self { app }
    }

    async fn call(
        &self,
        tool: AgentTool,
        caller: ToolCaller,
        arguments: Map<String, Value>,
    ) -> Result<Value, AppError> {
        let service = &self.app.service;
        let raw = || Value::Object(arguments.clone()).to_string();
        match tool {
            AgentTool::Search => service.tools.search(&caller, raw().as_bytes()).await,
            AgentTool::Describe => service.tools.describe(&caller, raw().as_bytes()).await,
            AgentTool::Estimate => service.quotes.estimate(&caller, raw().as_bytes()).await,
            AgentTool::Execute => self.execute(caller, read(arguments)?).await,
            AgentTool::GetResult => {
                may_read(&caller.actor)?;
                let wanted: GetResult = read(arguments)?;
                let limit = wanted.limit.unwrap_or(MAX_INLINE_RESULT);
                if limit == 0 || limit > MAX_INLINE_RESULT {
                    return Err(AppError::invalid("limit", "must be 1 to 65536 bytes"));
                }
                let offset = wanted.offset.unwrap_or(0);
                let view = result_view(&self.app, &caller.actor, &wanted.call_id, offset, limit).await;
                view.map_err(|error| error.0)
            }
            AgentTool::GetBalance => {
                may_read(&caller.actor)?;
                let balance = service.reader.balance(&caller.actor, &caller.payer).await?;
                Ok(balance_members(&balance))
            }
        }
    }

    async fn execute(&self, caller: ToolCaller, wanted: Execute) -> Result<Value, AppError> {
        let not_found = || {
            let message = "slug must be provider/endpoint, as search shows it";
            AppError::new(ErrorCode::EndpointNotFound, message)
        };
        let (provider, endpoint) = wanted.slug.split_once('/').ok_or_else(not_found)?;
        // The request itself was counted as a read.
        let limits = &self.app.service.limits;
        limits.check(LimitClass::Call, &caller.actor.limit_key())?;
        let shows_cost = sees_cost(&caller.actor);
        let context = CallContext {
            // The same as over REST: one key is one intent, whichever way it comes.
            route: format!("POST /api/wrapped/credits/{provider}/{endpoint}"),
            payer: caller.payer,
            actor: caller.actor,
            idempotency_key: Some(checked_key(wanted.idempotency_key.as_bytes()).map_err(|error| error.0)?),
            attribution: None,
            loop_id: None,
            approval_token: wanted.approval_token.map(Into::into),
        };
        let raw = Value::Object(wanted.args).to_string().into();
        let desk = &self.app.service.desk;
        let answer = desk
            .execute(context, provider.to_owned(), endpoint.to_owned(), raw)
            .await?;
        Ok(tool_view(answer, shows_cost, MAX_INLINE_RESULT))
    }
}

/// Demands what the routes of results and balances demand.
fn may_read(actor: &Actor) -> Result<(), AppError> {
    match &actor.credential {
        ActorCredential::Agent(_) => actor.require_agent(AgentScope::Read).map(drop),
        ActorCredential::EndUser(_) => actor.require_end_user(TokenScope::Read).map(drop),
        ActorCredential::Key(_) | ActorCredential::Member { .. } => actor.require(Scope::TenantRead),
    }
}

fn read<T: serde::de::DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, AppError> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| AppError::invalid("arguments", error.to_string()))
}

/// An error as a tool's result: the members of the REST body, and what to do about it.
fn failed(error: &AppError) -> CallToolResult {
    let mut body = members(error);
    if let Some(hint) = hint(error.code) {
        body.insert("hint".to_owned(), json!(hint));
    }
    if let Some(secs) = error.retry_after_secs {
        body.insert("retryAfterSeconds".to_owned(), json!(secs));
    }
    CallToolResult::structured_error(Value::Object(body))
}

impl ServerHandler for AgentTools {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("turnpike", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        AgentTool::named(name).map(AgentTool::listed)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(
            AgentTool::ALL.map(AgentTool::listed).to_vec(),
        ))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = AgentTool::named(&request.name)
            .ok_or_else(|| ErrorData::invalid_params("there is no such tool", None))?;
        let caller = context
            .extensions
            .get::<Parts>()
            .and_then(|parts| parts.extensions.get::<ToolCaller>())
            .cloned()
            .ok_or_else(|| ErrorData::internal_error("nobody is known to ask", None))?;
        let arguments = request.arguments.unwrap_or_default();
        let result = match self.call(tool, caller, arguments).await {
            Ok(value) => CallToolResult::structured(value),
            Err(error) => failed(&error),
        };
        Ok(result.into())
    }
}
