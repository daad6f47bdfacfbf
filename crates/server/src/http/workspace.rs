//! Routes of workspaces: a person's memberships, the workspace itself, its members, its audit log.

use std::sync::Arc;

use axum::extract::{Request, State};
use serde::Deserialize;
use serde_json::json;
use turnpike_app::audit::AuditQuery;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::access::{admitted, person};
use super::openapi::Errors;
use super::routes::{Answered, AppState, Segments, changing, no_store, page_size, query};
use super::schemas_workspace as schemas;

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(memberships))
        .routes(routes!(show, change))
        .routes(routes!(members))
        .routes(routes!(put_member, remove_member))
        .routes(routes!(audit))
}

/// Lists the workspaces that the person belongs to, by name.
#[utoipa::path(
    get, path = "/api/credits/tenants", tag = "Workspace",
    responses((status = 200, description = "Every membership; none is an empty list", body = schemas::MembershipList), Errors)
)]
async fn memberships(State(app): AppState, request: Request) -> Answered {
    let (parts, _body) = request.into_parts();
    let session = person(&parts)?;
    let memberships = app.service.workspaces.memberships(&session.subject).await?;
    Ok(no_store(&json!({ "success": true, "memberships": memberships })))
}

/// Shows the workspace.
#[utoipa::path(
    get, path = "/api/credits/tenants/me", tag = "Workspace",
    responses((status = 200, description = "The workspace", body = schemas::WorkspaceEnvelope), Errors)
)]
async fn show(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let tenant = app.service.workspaces.tenant(&actor).await?;
    Ok(no_store(&json!({ "success": true, "tenant": tenant })))
}

/// Renames the workspace, or says what a dollar is in credits, which is fixed by the first entry of its ledger.
#[utoipa::path(
    patch, path = "/api/credits/tenants/me", tag = "Workspace", request_body = schemas::WorkspaceChange,
    responses((status = 200, description = "The workspace", body = schemas::WorkspaceEnvelope), Errors)
)]
async fn change(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, false).await?;
    let tenant = app.service.workspaces.change(&actor, &raw).await?;
    app.service.authenticator.forget();
    Ok(no_store(&json!({ "success": true, "tenant": tenant })))
}

/// Lists the workspace's members, by subject.
#[utoipa::path(
    get, path = "/api/credits/tenants/me/members", tag = "Workspace",
    responses((status = 200, description = "Every member", body = schemas::MemberList), Errors)
)]
async fn members(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let members = app.service.workspaces.members(&actor).await?;
    Ok(no_store(&json!({ "success": true, "data": members })))
}

/// Adds a person of the identity provider as a member, or changes a member's role.
///
/// Nobody gives a role with scopes that they do not have; only an owner makes an owner, and the last one stays.
#[utoipa::path(
    put, path = "/api/credits/tenants/me/members/{subject}", tag = "Workspace", params(schemas::MemberPath),
    request_body = schemas::MemberBody,
    responses((status = 200, description = "The member", body = schemas::MemberEnvelope), Errors)
)]
async fn put_member(State(app): AppState, Segments(subject): Segments<String>, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, false).await?;
    let member = app.service.workspaces.put_member(&actor, &subject, &raw).await?;
    Ok(no_store(&json!({ "success": true, "member": member })))
}

/// Ends a membership. The last owner stays.
#[utoipa::path(
    delete, path = "/api/credits/tenants/me/members/{subject}", tag = "Workspace", params(schemas::MemberPath),
    responses((status = 200, description = "Ended", body = schemas::MemberRemoved), Errors)
)]
async fn remove_member(
    State(app): AppState,
    Segments(subject): Segments<String>,
    request: Request,
) -> Answered {
    let (actor, _parts) = admitted(request)?;
    app.service.workspaces.remove_member(&actor, &subject).await?;
    Ok(no_store(
        &json!({ "success": true, "subject": subject, "removed": true }),
    ))
}

#[derive(Deserialize)]
struct LogQuery {
    action: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// Lists what was changed by whom, newest first.
///
/// Each row's `hash` is SHA-256 over the previous row's hash and its own members, so that a row that was edited,
/// removed or inserted later shows; `turnpike audit` checks it.
#[utoipa::path(
    get, path = "/api/credits/audit", tag = "Workspace", params(schemas::AuditParams),
    responses((status = 200, description = "A page of the log", body = schemas::AuditPage), Errors)
)]
async fn audit(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let asked: LogQuery = query(&parts)?;
    let query = AuditQuery {
        action: asked.action,
        cursor: asked.cursor,
        limit: page_size(asked.limit)?,
    };
    let page = app.service.audit.page(&actor, &query).await?;
    Ok(no_store(
        &json!({ "success": true, "data": page.rows, "next_cursor": page.next_cursor }),
    ))
}
