//! Routes of invitations into a workspace.

use std::sync::Arc;

use axum::extract::{Request, State};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::access::{admitted, origin, person};
use super::body::read_json_body;
use super::openapi::Errors;
use super::routes::{Answered, AppState, Segments, body_limits, changing, no_store, page_size, query};
use super::schemas_invitations as schemas;

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list_invitations, create_invitation))
        .routes(routes!(revoke_invitation))
        .routes(routes!(accept_invitation))
}

#[derive(Deserialize)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
}

/// Lists the workspace's invitations, newest first.
#[utoipa::path(
    get, path = "/api/credits/tenants/me/invitations", tag = "Workspace", params(schemas::ListParams),
    responses((status = 200, description = "A page of invitations", body = schemas::InvitationList), Errors)
)]
async fn list_invitations(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let asked: ListQuery = query(&parts)?;
    let limit = page_size(asked.limit)?;
    let desk = &app.service.people.invitations;
    let (page, next) = desk.list(&actor, limit, asked.cursor.as_deref()).await?;
    Ok(no_store(
        &json!({ "success": true, "data": page, "next_cursor": next }),
    ))
}

/// Invites somebody into the workspace. The token, and with the built-in identity its link, is shown here and never again.
///
/// Nobody can give a role with scopes that they do not have themselves, and only an owner can invite an owner.
#[utoipa::path(
    post, path = "/api/credits/tenants/me/invitations", tag = "Workspace", request_body = schemas::NewInvitation,
    responses((status = 201, description = "The invitation with its token", body = schemas::Invited), Errors)
)]
async fn create_invitation(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, false).await?;
    let invited = app.service.people.invitations.create(&actor, &raw).await?;
    let mut response = no_store(&successful(invited));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

/// Takes an invitation back that nobody has accepted.
#[utoipa::path(
    delete, path = "/api/credits/tenants/me/invitations/{invitationId}", tag = "Workspace",
    params(schemas::InvitationPath),
    responses((status = 200, description = "The invitation", body = schemas::InvitationEnvelope), Errors)
)]
async fn revoke_invitation(
    State(app): AppState,
    Segments(id): Segments<String>,
    request: Request,
) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let revoked = app.service.people.invitations.revoke(&actor, &id).await?;
    Ok(no_store(&json!({ "success": true, "invitation": revoked })))
}

/// Accepts an invitation: whoever is signed in becomes a member of its workspace.
///
/// Needs no workspace header. Who is a member already keeps their role.
#[utoipa::path(
    post, path = "/api/credits/invitations/accept", tag = "Workspace", request_body = schemas::Acceptance,
    responses((status = 200, description = "The membership", body = schemas::MembershipEnvelope), Errors)
)]
async fn accept_invitation(State(app): AppState, request: Request) -> Answered {
    let (parts, body) = request.into_parts();
    let session = person(&parts)?;
    let raw = read_json_body(&parts.headers, body, body_limits(&app), false).await?;
    let desk = &app.service.people.invitations;
    let membership = desk.accept_body(&session.subject, &raw, &origin(&parts)).await?;
    Ok(no_store(&json!({ "success": true, "membership": membership })))
}

/// The members of `answer` behind `success`.
fn successful(answer: Value) -> Value {
    let mut body = json!({ "success": true });
    if let (Some(body), Value::Object(answer)) = (body.as_object_mut(), answer) {
        body.extend(answer);
    }
    body
}
