//! Shapes of the routes of workspaces, for the OpenAPI document.

#![expect(
    dead_code,
    reason = "these types only describe documents; the routes write the JSON"
)]

use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// A state of a workspace.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
enum WorkspaceStatus {
    /// In use.
    Active,
    /// Reads only.
    Suspended,
    /// Stopped for risk: no spending, no payouts.
    Frozen,
    /// Gone; its members may still read.
    Closed,
}

/// A member's role.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub(super) enum RoleName {
    Owner,
    Admin,
    Developer,
    Billing,
    Viewer,
}

/// A person's membership in a workspace.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct Membership {
    tenant_id: uuid::Uuid,
    tenant_name: String,
    #[schema(inline)]
    tenant_status: WorkspaceStatus,
    #[schema(inline)]
    role: RoleName,
}

/// A person's memberships.
#[derive(ToSchema)]
pub(super) struct MembershipList {
    success: bool,
    memberships: Vec<Membership>,
}

/// A workspace.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct Workspace {
    id: uuid::Uuid,
    name: String,
    #[schema(inline)]
    status: WorkspaceStatus,
    /// Credits in a dollar.
    #[schema(minimum = 1, maximum = 1_000_000)]
    credits_per_dollar: i64,
    #[schema(format = DateTime)]
    created_at: String,
    /// The caller's own role; absent for a key.
    #[schema(inline)]
    role: Option<RoleName>,
}

/// A workspace.
#[derive(ToSchema)]
pub(super) struct WorkspaceEnvelope {
    success: bool,
    tenant: Workspace,
}

/// What is changed; absent members stay.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct WorkspaceChange {
    #[schema(min_length = 1, max_length = 100, nullable = false)]
    name: Option<String>,
    /// Credits in a dollar; fixed by the first entry of the ledger.
    #[schema(minimum = 1, maximum = 1_000_000, nullable = false)]
    credits_per_dollar: Option<i64>,
}

/// Names a member in the path, percent-encoded.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct MemberPath {
    /// The identity provider's subject, percent-encoded.
    #[param(min_length = 1, max_length = 255)]
    subject: String,
}

/// A member's role.
#[derive(ToSchema)]
pub(super) struct MemberBody {
    #[schema(inline)]
    role: RoleName,
}

/// A member.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct WorkspaceMember {
    subject: String,
    #[schema(inline)]
    role: RoleName,
    #[schema(format = DateTime)]
    created_at: String,
}

/// A member.
#[derive(ToSchema)]
pub(super) struct MemberEnvelope {
    success: bool,
    member: WorkspaceMember,
}

/// Members.
#[derive(ToSchema)]
pub(super) struct MemberList {
    success: bool,
    data: Vec<WorkspaceMember>,
}

/// A membership that ended.
#[derive(ToSchema)]
pub(super) struct MemberRemoved {
    success: bool,
    subject: String,
    removed: bool,
}

/// Query of the audit log.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditParams {
    /// Only actions that begin with this, such as `key.`.
    #[param(required = false, max_length = 100)]
    action: Option<String>,
    /// Page size.
    #[param(minimum = 1, maximum = 100, default = 20, required = false)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[param(required = false)]
    cursor: Option<String>,
}

/// A row of the audit log.
#[derive(ToSchema)]
pub(super) struct AuditItem {
    id: uuid::Uuid,
    /// Position in the workspace's chain.
    sequence: String,
    #[schema(format = DateTime)]
    at: String,
    /// `member:…`, `key:…`, `token:…` or `operator`.
    actor: String,
    action: String,
    target: String,
    /// The thing before.
    #[schema(required = true)]
    before: Option<Value>,
    /// The thing afterwards.
    #[schema(required = true)]
    after: Option<Value>,
    /// The request and the address it came from, or how the operator came.
    origin: String,
    /// SHA-256 of the chain up to and including this row, hexadecimal; null before the log was chained.
    #[schema(required = true)]
    hash: Option<String>,
}

/// A page of the audit log.
#[derive(ToSchema)]
pub(super) struct AuditPage {
    success: bool,
    data: Vec<AuditItem>,
    #[schema(required = true)]
    next_cursor: Option<String>,
}
