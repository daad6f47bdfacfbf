//! Routes of top-ups: an end user's own, the pool's, refunds, automatic top-ups, and the processor's events.

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};
use turnpike_app::AppError;
use turnpike_app::auth::LimitKey;
use turnpike_app::limits::LimitClass;
use turnpike_app::topups::{RefundRequest, Repeatable, Shown, TopupRequest, auto_topup_choice};
use turnpike_core::errors::ErrorCode;

use super::access::admitted;
use super::body::{BodyLimits, read_json_body};
use super::caller::{idempotency_key, paying};
use super::header_params;
use super::openapi::Errors;
use super::problem::{ApiError, REPLAYED};
use super::routes::{
    Answered, AppState, Segments, body_limits, changing, no_store, page_size, payer_filter, query,
};
use super::schemas_topups as schemas;

/// Largest event of a processor, in bytes.
const MAX_EVENT_BYTES: usize = 512 * 1024;
const TOPUPS: &str = "/api/credits/topups";
const STRIPE_SIGNATURE: HeaderName = HeaderName::from_static("stripe-signature");

pub(super) fn answer(members: Value) -> Response {
    let mut body = json!({ "success": true });
    if let (Some(body), Value::Object(members)) = (body.as_object_mut(), members) {
        body.extend(members);
    }
    no_store(&body)
}

/// The answer to a request that may be a repeat.
pub(super) fn answer_once(shown: Shown) -> Response {
    let mut response = answer(shown.members);
    if shown.replayed {
        let headers = response.headers_mut();
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

pub(super) fn repeatable(parts: &Parts, raw: bytes::Bytes) -> Result<Repeatable, ApiError> {
    Ok(Repeatable {
        route: format!("{} {}", parts.method, parts.uri.path()),
        raw,
        key: idempotency_key(&parts.headers)?,
    })
}

/// Opens a checkout session that fills the end user's own balance.
#[utoipa::path(
    post, path = "/api/credits/me/topups", tag = "Top-ups",
    params(header_params::OptionalKey, header_params::Session),
    request_body = schemas::TopupBody,
    responses((status = 200, description = "The checkout session", body = schemas::CheckoutSession), Errors)
)]
pub(super) async fn open_own(State(app): AppState, request: Request) -> Answered {
    let (actor, parts, raw) = changing(&app, request, false).await?;
    paying(&app, &parts.headers, &actor)?;
    let body = TopupRequest::parse(&raw, false)?;
    let repeat = repeatable(&parts, raw)?;
    let shown = app.service.topups.open_own(&actor, &body, &repeat).await?;
    Ok(answer_once(shown))
}

/// Shows a checkout session of the end user.
#[utoipa::path(
    get, path = "/api/credits/me/topups/{sessionId}", tag = "Top-ups",
    params(("sessionId" = String, Path, description = "The session, `cs_…`"), header_params::Session),
    responses((status = 200, description = "The session", body = schemas::CheckoutSession), Errors)
)]
pub(super) async fn own_session(
    State(app): AppState,
    Segments(session): Segments<String>,
    request: Request,
) -> Answered {
    let (actor, parts) = admitted(request)?;
    paying(&app, &parts.headers, &actor)?;
    Ok(answer(app.service.topups.own_session(&actor, &session).await?))
}

/// Opens a checkout session that fills the workspace's pool.
#[utoipa::path(
    post, path = "/api/credits/tenants/me/topups", tag = "Top-ups", params(header_params::OptionalKey),
    request_body = schemas::PoolTopupBody,
    responses((status = 200, description = "The checkout session", body = schemas::CheckoutSession), Errors)
)]
pub(super) async fn open_pool(State(app): AppState, request: Request) -> Answered {
    let (actor, parts, raw) = changing(&app, request, false).await?;
    // Another key of the same workspace does not get around the limit.
    let workspace = LimitKey::Workspace(actor.tenant.id);
    app.service.limits.check(LimitClass::Topup, &workspace)?;
    let body = TopupRequest::parse(&raw, true)?;
    let repeat = repeatable(&parts, raw)?;
    let shown = app.service.topups.open_pool(&actor, &body, &repeat).await?;
    Ok(answer_once(shown))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TopupQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    external_user_id: Option<String>,
}

/// Lists the workspace's top-ups, newest first.
#[utoipa::path(
    get, path = "/api/credits/topups", tag = "Top-ups", params(schemas::TopupParams),
    responses((status = 200, description = "A page of top-ups", body = schemas::TopupList), Errors)
)]
pub(super) async fn list(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let query: TopupQuery = query(&parts)?;
    let payer = payer_filter(query.external_user_id)?;
    let limit = page_size(query.limit)?;
    let page = app
        .service
        .topups
        .list(&actor, payer, query.cursor.as_deref(), limit)
        .await?;
    Ok(no_store(
        &json!({ "success": true, "data": page.topups, "next_cursor": page.next_cursor }),
    ))
}

/// Shows a top-up of the workspace with its refunds and disputes.
#[utoipa::path(
    get, path = "/api/credits/topups/{sessionId}", tag = "Top-ups",
    params(("sessionId" = String, Path, description = "The session, `cs_…`")),
    responses((status = 200, description = "The top-up", body = schemas::TopupRecord), Errors)
)]
pub(super) async fn session(
    State(app): AppState,
    Segments(session): Segments<String>,
    request: Request,
) -> Answered {
    let (actor, _parts) = admitted(request)?;
    Ok(answer(app.service.topups.session(&actor, &session).await?))
}

/// Refunds a top-up: a part of what was paid, or all that is left.
#[utoipa::path(
    post, path = "/api/credits/topups/{sessionId}/refunds", tag = "Top-ups",
    params(("sessionId" = String, Path, description = "The session, `cs_…`"), header_params::RequiredKey),
    request_body = schemas::RefundBody,
    responses((status = 200, description = "The refund", body = schemas::RefundRecord), Errors)
)]
pub(super) async fn refund(
    State(app): AppState,
    Segments(session): Segments<String>,
    request: Request,
) -> Answered {
    let (actor, parts, raw) = changing(&app, request, true).await?;
    let body = RefundRequest::parse(&raw)?;
    let repeat = Repeatable {
        // However the path was written.
        route: format!("POST {TOPUPS}/{session}/refunds"),
        ..repeatable(&parts, raw)?
    };
    if repeat.key.is_none() {
        return Err(ApiError::new(
            ErrorCode::IdempotencyKeyRequired,
            "send an Idempotency-Key header with a refund",
        ));
    }
    let refund = app
        .service
        .topups
        .refund(&actor, &session, &body, &repeat)
        .await?;
    Ok(answer_once(refund))
}

/// Shows the workspace's automatic top-ups.
#[utoipa::path(
    get, path = "/api/credits/tenants/me/auto-topup", tag = "Top-ups",
    responses((status = 200, description = "The choice", body = schemas::AutoTopup), Errors)
)]
pub(super) async fn get_auto(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    Ok(answer(app.service.topups.auto(&actor).await?))
}

/// Sets the workspace's automatic top-ups.
#[utoipa::path(
    put, path = "/api/credits/tenants/me/auto-topup", tag = "Top-ups", request_body = schemas::AutoTopupBody,
    responses((status = 200, description = "The choice", body = schemas::AutoTopup), Errors)
)]
pub(super) async fn put_auto(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, false).await?;
    let choice = auto_topup_choice(&raw)?;
    Ok(answer(app.service.topups.set_auto(&actor, choice).await?))
}

/// Takes a signed event of the payment processor. 2xx only once it is booked.
#[utoipa::path(
    post, path = "/api/credits/processor/events", tag = "Top-ups",
    params(header_params::ProcessorSignature),
    request_body(content = std::collections::BTreeMap<String, Value>, description = "The processor's event, as it signed it"),
    responses((status = 200, description = "Booked, or nothing of ours", body = schemas::Received), Errors)
)]
pub(super) async fn processor_event(State(app): AppState, request: Request) -> Answered {
    let (parts, body) = request.into_parts();
    let limits = BodyLimits {
        bytes: MAX_EVENT_BYTES,
        ..body_limits(&app)
    };
    let signature = parts
        .headers
        .get(STRIPE_SIGNATURE)
        .and_then(|value| value.to_str().ok())
        .ok_or_else(|| ApiError(AppError::invalid("stripe-signature", "the event is not signed")))?
        .to_owned();
    let raw = read_json_body(&parts.headers, body, limits, false).await?;
    app.service.topups.take_event(&raw, &signature).await?;
    Ok(axum::Json(json!({ "received": true })).into_response())
}
