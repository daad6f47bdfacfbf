//! The shapes that the routes of agent connections speak, for the OpenAPI document.

#![expect(
    dead_code,
    reason = "these types only describe documents; the routes write the JSON"
)]

use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// Names a connection in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct AgentPath {
    /// The connection.
    #[param(rename = "agentId")]
    agent_id: Uuid,
}

/// What an agent connection may do.
#[derive(ToSchema)]
enum AgentScope {
    #[schema(rename = "mcp:read")]
    Read,
    #[schema(rename = "mcp:execute")]
    Execute,
}

/// How it came about.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
enum AgentKind {
    Secret,
    Oauth,
}

/// Whether it works.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
enum AgentStatus {
    Active,
    Expired,
    Revoked,
}

/// What a connection is narrowed to.
#[derive(ToSchema)]
struct AgentTools {
    /// `provider/endpoint`, `provider/model` or `provider/*`.
    #[schema(max_items = 200, nullable = false)]
    enable: Option<Vec<String>>,
}

/// An agent connection to make.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct NewAgent {
    /// What people call it.
    #[schema(min_length = 1, max_length = 100, example = "Research assistant")]
    name: String,
    /// The end user who pays; the workspace's pool when absent.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$", nullable = false)]
    external_user_id: Option<String>,
    #[schema(inline, min_items = 1, max_items = 2, example = json!(["mcp:read", "mcp:execute"]))]
    scopes: Vec<AgentScope>,
    /// Absent: everything that the workspace has enabled.
    #[schema(inline, nullable = false)]
    tools: Option<AgentTools>,
    /// Most that may be spent with it in its life.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$", nullable = false, example = "5")]
    max_usd: Option<String>,
    /// Most that one call may cost.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$", nullable = false)]
    max_usd_per_call: Option<String>,
    /// Seconds until it stops working.
    #[schema(minimum = 300, maximum = 31_536_000, example = 86_400)]
    expires_in: i64,
}

/// An agent connection.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct AgentConnection {
    id: Uuid,
    name: String,
    #[schema(inline)]
    kind: AgentKind,
    /// Null: the workspace's pool pays.
    #[schema(required)]
    external_user_id: Option<String>,
    /// The first characters of its secret; null when it has none.
    #[schema(required)]
    secret_prefix: Option<String>,
    /// The client that it was granted to; null when it has a secret.
    #[schema(required)]
    client_id: Option<String>,
    #[schema(inline)]
    scopes: Vec<AgentScope>,
    #[schema(required, inline)]
    tools: Option<AgentTools>,
    #[schema(required)]
    max_usd: Option<String>,
    #[schema(required)]
    max_usd_per_call: Option<String>,
    /// Spent and held with it; counted when it has a ceiling.
    #[schema(required)]
    spent_usd: Option<String>,
    #[schema(inline)]
    status: AgentStatus,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
    #[schema(format = DateTime)]
    expires_at: String,
    /// To the minute.
    #[schema(required, format = DateTime)]
    last_used_at: Option<String>,
    #[schema(required, format = DateTime)]
    revoked_at: Option<String>,
}

/// A connection that was just made.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct IssuedAgent {
    success: bool,
    /// The secret, shown this once.
    #[schema(pattern = "^[a-z][a-z0-9]*_ac_[0-9A-Za-z]{49}$")]
    secret: String,
    agent_connection: AgentConnection,
}

/// A connection.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct AgentEnvelope {
    success: bool,
    agent_connection: AgentConnection,
}

/// A page of connections.
#[derive(ToSchema)]
pub(super) struct AgentList {
    success: bool,
    data: Vec<AgentConnection>,
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Metadata of the authorization server (RFC 8414).
#[derive(ToSchema)]
pub(super) struct ServerMetadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    registration_endpoint: String,
    revocation_endpoint: String,
    scopes_supported: Vec<String>,
    response_types_supported: Vec<String>,
    grant_types_supported: Vec<String>,
    code_challenge_methods_supported: Vec<String>,
}

/// Metadata of the MCP endpoint (RFC 9728).
#[derive(ToSchema)]
pub(super) struct ResourceMetadata {
    /// The MCP endpoint.
    resource: String,
    /// Absent where nobody can agree on a page of this service.
    #[schema(nullable = false)]
    authorization_servers: Option<Vec<String>>,
    scopes_supported: Vec<String>,
    bearer_methods_supported: Vec<String>,
    resource_name: String,
}
