//! The shapes that the routes of invitations speak, for the OpenAPI document.

#![expect(
    dead_code,
    reason = "these types only describe documents; the routes write the JSON"
)]

use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// What a member may do.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum MemberRole {
    Owner,
    Admin,
    Developer,
    Billing,
    Viewer,
}

/// What became of an invitation.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum InvitationStatus {
    Open,
    Accepted,
    Revoked,
    Expired,
}

/// Which invitations a list shows.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// 1 to 100; 20 when absent.
    #[param(minimum = 1, maximum = 100, required = false)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[param(required = false)]
    cursor: Option<Uuid>,
}

/// Names an invitation in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct InvitationPath {
    /// The invitation.
    #[param(rename = "invitationId")]
    invitation_id: Uuid,
}

/// An invitation into a workspace.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Invitation {
    id: Uuid,
    #[schema(inline)]
    role: MemberRole,
    /// Whom it is for, in the words of who made it.
    note: Option<String>,
    #[schema(inline)]
    status: InvitationStatus,
    created_by: String,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    expires_at: String,
    #[schema(format = DateTime)]
    accepted_at: Option<String>,
    /// The subject that accepted it.
    accepted_by: Option<String>,
    #[schema(format = DateTime)]
    revoked_at: Option<String>,
}

/// A page of invitations.
#[derive(Serialize, ToSchema)]
pub(super) struct InvitationList {
    success: bool,
    data: Vec<Invitation>,
    next_cursor: Option<Uuid>,
}

/// Whom to let in.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewInvitation {
    #[schema(inline)]
    role: MemberRole,
    /// Whom it is for: a name or an e-mail address. Nothing is sent to it.
    #[schema(min_length = 1, max_length = 254, required = false)]
    note: Option<String>,
    /// Seconds until it cannot be accepted any more; a week when absent.
    #[schema(minimum = 3600, maximum = 2_592_000, required = false, nullable = false)]
    expires_in: Option<i64>,
}

/// An invitation that was just made.
#[derive(Serialize, ToSchema)]
pub(super) struct Invited {
    success: bool,
    invitation: Invitation,
    /// What its bearer accepts it with.
    token: String,
    /// The page where its bearer joins; null when another identity provider signs people in.
    url: Option<String>,
}

/// An invitation.
#[derive(Serialize, ToSchema)]
pub(super) struct InvitationEnvelope {
    success: bool,
    invitation: Invitation,
}

/// Which invitation is accepted.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Acceptance {
    /// What the invitation was shown with.
    #[schema(min_length = 1, max_length = 128)]
    token: String,
}

/// A membership that was just made.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct NewMembership {
    tenant_id: Uuid,
    tenant_name: String,
    tenant_status: String,
    #[schema(inline)]
    role: MemberRole,
}

/// A membership.
#[derive(Serialize, ToSchema)]
pub(super) struct MembershipEnvelope {
    success: bool,
    membership: NewMembership,
}
