//! Routes of approvals: what agents wish, and what owners and admins decide about it.

use std::sync::Arc;

use axum::extract::{Request, State};
use http::StatusCode;
use serde::Deserialize;
use turnpike_app::approvals::ApprovalQuery;
use turnpike_core::ledger::Payer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::access::admitted;
use super::openapi::Errors;
use super::quotes::tool_caller;
use super::routes::{
    Answered, AppState, Segments, changing, enveloped, page_size, paged, payer_filter, query, with_status,
};
use super::schemas_quotes as schemas;
use super::{App, header_params};

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list, request_access))
        .routes(routes!(approval))
        .routes(routes!(approve))
        .routes(routes!(deny))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListQuery {
    status: Option<String>,
    external_user_id: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// Lists the workspace's approvals, newest first.
#[utoipa::path(
    get, path = "/api/credits/approvals", tag = "Approvals", params(schemas::ApprovalListParams),
    responses((status = 200, description = "A page of approvals", body = schemas::ApprovalList), Errors)
)]
async fn list(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let asked: ListQuery = query(&parts)?;
    let owner = match payer_filter(asked.external_user_id)? {
        Some(Payer::EndUser(id)) => Some(id),
        Some(Payer::Pool) | None => None,
    };
    let query = ApprovalQuery {
        status: asked.status,
        owner,
        cursor: asked.cursor,
        limit: page_size(asked.limit)?,
    };
    Ok(paged(&app.service.approvals.list(&actor, &query).await?))
}

/// Asks that an end user may call a tool that its policy does not name.
///
/// The same wish again gives the approval that is open.
#[utoipa::path(
    post, path = "/api/credits/approvals", tag = "Approvals", params(header_params::OnBehalfOf),
    request_body = schemas::AccessRequest,
    responses(
        (status = 200, description = "It was asked for before and is open", body = schemas::ApprovalEnvelope),
        (status = 201, description = "It waits for a decision", body = schemas::ApprovalEnvelope), Errors)
)]
async fn request_access(State(app): AppState, request: Request) -> Answered {
    let (actor, parts, raw) = changing(&app, request, false).await?;
    let caller = tool_caller(&app, &parts, actor)?;
    let (approval, fresh) = app.service.approvals.request_access(&caller, &raw).await?;
    let status = if fresh {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(with_status(status, enveloped("approval", &approval)))
}

/// Shows an approval.
#[utoipa::path(
    get, path = "/api/credits/approvals/{approvalId}", tag = "Approvals", params(schemas::ApprovalPath),
    responses((status = 200, description = "The approval", body = schemas::ApprovalEnvelope), Errors)
)]
async fn approval(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let approval = app.service.approvals.get(&actor, &id).await?;
    Ok(enveloped("approval", &approval))
}

async fn decide(app: &App, id: &str, approve: bool, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(app, request, true).await?;
    let approval = app.service.approvals.decide(&actor, id, approve, &raw).await?;
    Ok(enveloped("approval", &approval))
}

/// Approves: owners and admins with a second factor of the last ten minutes.
///
/// Access to a tool is given at once; a call can be made with its approval for an hour, once.
#[utoipa::path(
    post, path = "/api/credits/approvals/{approvalId}/approve", tag = "Approvals", params(schemas::ApprovalPath),
    request_body = Option<schemas::Decision>,
    responses((status = 200, description = "Approved, now or before", body = schemas::ApprovalEnvelope), Errors)
)]
async fn approve(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    decide(&app, &id, true, request).await
}

/// Denies: owners and admins with a second factor of the last ten minutes.
///
/// What was approved and not used yet is taken back.
#[utoipa::path(
    post, path = "/api/credits/approvals/{approvalId}/deny", tag = "Approvals", params(schemas::ApprovalPath),
    request_body = Option<schemas::Decision>,
    responses((status = 200, description = "Denied, now or before", body = schemas::ApprovalEnvelope), Errors)
)]
async fn deny(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    decide(&app, &id, false, request).await
}
