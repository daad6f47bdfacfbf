//! The Model Context Protocol server: search, describe, estimate and execute for agents, over streamable HTTP.
//!
//! Each request stands alone: there are no sessions to lose, and any node answers. Who asks was found out before, and
//! the tools are the use cases of the REST routes, with their errors as tool results that say what to do next.
//!
//! Source: Model Context Protocol, versions 2025-03-26 to 2026-07-28, by `rmcp`.

mod docs;
mod handler;
mod tools;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use http::{HeaderValue, Uri, header};
use http_body_util::Full;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use turnpike_app::tools::ToolCaller;
use turnpike_core::errors::ErrorCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::handler::AgentTools;
use super::access::caller;
use super::body::read_json_body;
use super::caller::paying;
use super::openapi::Errors;
use super::problem::ApiError;
use super::routes::{Answered, AppState, body_limits};
use super::{App, header_params};

/// What a client must take by the protocol, which its library asks for.
const ACCEPTED: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(mcp)).merge(docs::routes())
}

/// The tools for agents, by the Model Context Protocol.
///
/// JSON-RPC over streamable HTTP; see `GET /api/credits/mcp/docs`. There are no sessions and no server-sent requests, so
/// each answer is one JSON document.
#[utoipa::path(
    post, path = "/api/credits/mcp", tag = "Agents",
    params(header_params::OnBehalfOf),
    request_body(
        content = BTreeMap<String, Value>, description = "A JSON-RPC 2.0 message",
        example = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} })),
    responses(
        Errors,
        (status = 200, description = "A JSON-RPC 2.0 response", body = BTreeMap<String, Value>),
        (status = 202, description = "A notification was taken"),
        (status = 400, description = "A JSON-RPC 2.0 error, or the error of every route", body = BTreeMap<String, Value>),
        (status = 404, description = "A JSON-RPC 2.0 error: there is no such method", body = BTreeMap<String, Value>))
)]
async fn mcp(State(app): AppState, request: Request) -> Answered {
    let (mut parts, body) = request.into_parts();
    let actor = caller(&parts)?;
    let payer = paying(&app, &parts.headers, &actor)?;
    let raw = read_json_body(&parts.headers, body, body_limits(&app), false).await?;
    parts.extensions.insert(ToolCaller { actor, payer });
    // One JSON document is within what every client of the protocol takes, whatever it says.
    parts.headers.insert(header::ACCEPT, ACCEPTED);
    parts.headers.insert(header::CONTENT_TYPE, JSON);
    let request = http::Request::from_parts(parts, Full::new(raw));
    let answered = service(&app).handle(request).await;
    let status = answered.status();
    let is_json = answered
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if status.is_success() || is_json {
        return Ok(answered.map(Body::new).into_response());
    }
    let (code, message) = match status.as_u16() {
        403 => (
            ErrorCode::CredentialKindNotAllowed,
            "pages of this origin may not ask, or the service has another name",
        ),
        400..500 => (ErrorCode::ValidationError, "this is no message of the protocol"),
        _ => (ErrorCode::Internal, "the message could not be answered"),
    };
    Err(ApiError::new(code, message))
}

fn service(app: &Arc<App>) -> StreamableHttpService<AgentTools, NeverSessionManager> {
    let server = &app.service.config.server;
    let handler = AgentTools::new(app.clone());
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(server.max_body_bytes)
        .with_allowed_hosts(hosts(&server.public_url))
        .with_allowed_origins(origins(&server.public_url))
        .enforce_origin_validation();
    StreamableHttpService::new(
        move || Ok(handler.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    )
}

/// Under which names it is reached: its own, and this machine's.
fn hosts(public_url: &str) -> Vec<String> {
    let own = public_url
        .parse::<Uri>()
        .ok()
        .and_then(|url| url.host().map(str::to_owned));
    let local = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    own.into_iter().chain(local).collect()
}

/// Which pages' scripts may ask: its own, and those of tools that run on the agent's machine.
fn origins(public_url: &str) -> Vec<String> {
    let own = public_url.parse::<Uri>().ok().and_then(|url| {
        let (scheme, host) = (url.scheme_str()?, url.host()?);
        let port = url.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
        Some(format!("{scheme}://{host}:{port}"))
    });
    let local = ["http://localhost:*", "http://127.0.0.1:*"].map(str::to_owned);
    own.into_iter().chain(local).collect()
}
