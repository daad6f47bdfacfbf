//! How to connect an agent: addresses, metadata and client configurations, for people and programs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, header};
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::tools::AgentTool;
use crate::http::App;
use crate::http::routes::AppState;

const MAX_AGE: HeaderValue = HeaderValue::from_static("public, max-age=300");

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(mcp_docs))
}

/// How to connect an agent by the Model Context Protocol.
///
/// `clients` are configurations to paste: each connects by OAuth, with a person's consent in a browser. Where this service
/// does not sign people in, `oauth` is null, and agents connect with the secret of an agent connection.
#[utoipa::path(
    get, path = "/api/credits/mcp/docs", tag = "Agents",
    responses((status = 200, description = "Addresses and client configurations", body = Value))
)]
async fn mcp_docs(State(app): AppState) -> Response {
    ([(header::CACHE_CONTROL, MAX_AGE)], Json(docs(&app))).into_response()
}

fn docs(app: &App) -> Value {
    let oauth = &app.service.oauth;
    let url = oauth.resource();
    let name = &app.service.config.server.brand;
    let server = oauth.server_metadata();
    let tools: Vec<Value> = AgentTool::ALL
        .iter()
        .map(|tool| json!({ "name": tool.name(), "description": tool.description() }))
        .collect();
    json!({
        "success": true,
        "mcp": { "url": url, "transport": "streamable_http", "protocolVersions": versions() },
        "oauth": oauth.is_open().then(|| json!({
            "issuer": oauth.issuer(),
            "protectedResourceMetadataUrl": oauth.resource_metadata_url(),
            "authorizationServerMetadataUrl": format!("{}/.well-known/oauth-authorization-server", oauth.issuer()),
            "registrationEndpoint": server["registration_endpoint"],
            "scopes": server["scopes_supported"],
            "grantTypes": server["grant_types_supported"],
            "pkce": "S256",
        })),
        "plugins": [
            { "client": "claude_code", "commands": [format!("claude mcp add --transport http {name} {url}")] },
            { "client": "codex", "commands": [format!("codex mcp add {name} --url {url}"), format!("codex mcp login {name}")] },
            { "client": "vscode", "commands": [
                format!("code --add-mcp '{}'", json!({ "name": name, "type": "http", "url": url }))
            ] }
        ],
        "clients": {
            "claude_code": { "mcpServers": { name: { "type": "http", "url": url } } },
            "codex": format!("[mcp_servers.{name}]\nurl = \"{url}\"\n"),
            "cursor": { "mcpServers": { name: { "url": url } } },
            "vscode": { "servers": { name: { "type": "http", "url": url } } },
            "generic": {
                "url": url,
                "headers": { "Authorization": format!("Bearer <{name}_ac_…, the secret of an agent connection>") }
            }
        },
        "tools": tools
    })
}

/// The versions that are spoken, the oldest first.
fn versions() -> Vec<String> {
    rmcp::model::ProtocolVersion::KNOWN_VERSIONS
        .iter()
        .map(ToString::to_string)
        .collect()
}
