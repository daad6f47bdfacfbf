//! Routes of payouts: the margin account, where it goes, payouts, and the connection to the processor.

use std::sync::Arc;

use axum::extract::{Request, State};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use turnpike_app::payouts::{PayoutRequest, ReturnRequest};
use turnpike_app::topups::Repeatable;
use turnpike_core::errors::ErrorCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::access::admitted;
use super::openapi::Errors;
use super::problem::ApiError;
use super::routes::{Answered, AppState, Segments, changing, no_store, page_size, query};
use super::schemas_payouts as schemas;
use super::topups::{answer, answer_once, repeatable};
use super::{App, header_params};

const PAYOUTS: &str = "/api/credits/payouts";

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(account))
        .routes(routes!(put_stablecoin))
        .routes(routes!(list, open))
        .routes(routes!(payout))
        .routes(routes!(cancel))
        .routes(routes!(start))
        .routes(routes!(status))
        .routes(routes!(disconnect))
}

/// Shows what the workspace earned, what was paid out of it, and where to.
#[utoipa::path(
    get, path = "/api/credits/payouts/account", tag = "Payouts",
    responses((status = 200, description = "The margin account", body = schemas::PayoutAccountEnvelope), Errors)
)]
async fn account(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    Ok(answer(app.service.payouts.account(&actor).await?))
}

/// Sets the address on a chain to which the workspace is paid out.
#[utoipa::path(
    put, path = "/api/credits/payouts/stablecoin", tag = "Payouts", request_body = schemas::StablecoinBody,
    responses((status = 200, description = "The address", body = schemas::StablecoinSet), Errors)
)]
async fn put_stablecoin(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, false).await?;
    Ok(answer(app.service.payouts.set_stablecoin(&actor, &raw).await?))
}

#[derive(Deserialize)]
struct PayoutQuery {
    limit: Option<u32>,
    cursor: Option<String>,
}

/// Lists the workspace's payouts, newest first.
#[utoipa::path(
    get, path = "/api/credits/payouts", tag = "Payouts", params(schemas::PayoutParams),
    responses((status = 200, description = "A page of payouts", body = schemas::PayoutList), Errors)
)]
async fn list(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let query: PayoutQuery = query(&parts)?;
    let limit = page_size(query.limit)?;
    let desk = &app.service.payouts;
    let page = desk.list(&actor, query.cursor.as_deref(), limit).await?;
    Ok(no_store(
        &json!({ "success": true, "data": page.payouts, "next_cursor": page.next_cursor }),
    ))
}

/// Pays margin out.
///
/// By the processor where the workspace is connected to it, else to its address on a chain.
#[utoipa::path(
    post, path = "/api/credits/payouts", tag = "Payouts", params(header_params::RequiredKey),
    request_body = Option<schemas::PayoutBody>,
    responses((status = 201, description = "The payout", body = schemas::PayoutEnvelope), Errors)
)]
async fn open(State(app): AppState, request: Request) -> Answered {
    let (actor, parts, raw) = changing(&app, request, true).await?;
    let body = PayoutRequest::parse(&raw)?;
    let repeat = Repeatable {
        // However the path was written.
        route: format!("POST {PAYOUTS}"),
        ..repeatable(&parts, raw)?
    };
    if repeat.key.is_none() {
        return Err(ApiError::new(
            ErrorCode::IdempotencyKeyRequired,
            "send an Idempotency-Key header with a payout",
        ));
    }
    let mut response = answer_once(app.service.payouts.open(&actor, &body, &repeat).await?);
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

/// Shows a payout.
#[utoipa::path(
    get, path = "/api/credits/payouts/{payoutId}", tag = "Payouts",
    params(("payoutId" = uuid::Uuid, Path, description = "The payout")),
    responses((status = 200, description = "The payout", body = schemas::PayoutEnvelope), Errors)
)]
async fn payout(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    Ok(answer(app.service.payouts.payout(&actor, &id).await?))
}

/// Withdraws a payout to an address on a chain that nobody has begun to send.
#[utoipa::path(
    post, path = "/api/credits/payouts/{payoutId}/cancel", tag = "Payouts",
    params(("payoutId" = uuid::Uuid, Path, description = "The payout")),
    responses((status = 200, description = "The payout", body = schemas::PayoutEnvelope), Errors)
)]
async fn cancel(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    Ok(answer(app.service.payouts.cancel(&actor, &id).await?))
}

/// Begins to connect an account at the payment processor.
///
/// The account is made once; each request gives another page on which its owner introduces themselves.
#[utoipa::path(
    post, path = "/api/credits/connect/processor/start", tag = "Payouts",
    request_body = Option<schemas::ConnectBody>,
    responses((status = 200, description = "The page", body = schemas::ConnectStarted), Errors)
)]
async fn start(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, true).await?;
    let body = ReturnRequest::parse(&raw)?;
    Ok(answer(app.service.payouts.start_connection(&actor, &body).await?))
}

/// Shows how far the connection to the payment processor is.
#[utoipa::path(
    get, path = "/api/credits/connect/processor/status", tag = "Payouts",
    responses((status = 200, description = "The connection", body = schemas::ConnectionStatus), Errors)
)]
async fn status(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    Ok(answer(app.service.payouts.connection(&actor).await?))
}

/// Unlinks the account at the payment processor.
///
/// Payouts under way finish; later ones go to the address on a chain. Nothing happens when nothing is linked.
#[utoipa::path(
    post, path = "/api/credits/connect/processor/disconnect", tag = "Payouts",
    responses((status = 200, description = "Nothing is connected", body = schemas::Disconnected), Errors)
)]
async fn disconnect(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    app.service.payouts.disconnect(&actor).await?;
    Ok(no_store(&json!({ "success": true })))
}
