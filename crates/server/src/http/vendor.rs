//! Routes that are paid for by the call (specification 4.1 to 4.3): challenge, payment, answer, receipt.
//!
//! What is said about payments stands in headers, as both protocols want it; the bodies are the providers' own, and
//! problems (RFC 9457) where a payment is wanted.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use serde_json::json;
use tower::Layer as _;
use turnpike_app::paid_calls::{Offered, PaidReply, PaidRequest, Unpaid, mpp, receipt_id};
use turnpike_app::{AppError, PaidCallDesk};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{ReceiptId, RequestId};
use turnpike_core::ledger::paid_call::{Operation, PaidBy, PaidCall, PaidCallState};
use turnpike_core::x402::wire;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::body::read_json_body;
use super::openapi::Errors;
use super::problem::{ApiError, SHOULD_RETRY};
use super::routes::{Answered, AppState, Segments, body_limits, no_store};
use super::schemas_vendor as schemas;
use super::{App, HeaderNames, vendor_doc};

const PAYMENT_REQUIRED: HeaderName = HeaderName::from_static("payment-required");
const PAYMENT_SIGNATURE: HeaderName = HeaderName::from_static("payment-signature");
const PAYMENT_RESPONSE: HeaderName = HeaderName::from_static("payment-response");
const PAYMENT_RECEIPT: HeaderName = HeaderName::from_static("payment-receipt");
/// The scheme of the machine payments protocol in `Authorization`.
const MPP_SCHEME: &str = "payment ";
const PROBLEMS: &str = "https://paymentauth.org/problems/";
/// When to ask again about a request that is being worked on.
const RETRY_AFTER_SECS: u64 = 1;

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(chat))
        .routes(routes!(fim))
        .routes(routes!(list_models))
        .routes(routes!(receipt))
        .routes(routes!(vendor_openapi))
}

/// A chat completion, paid for by the call.
///
/// Without a payment the answer is 402 with the terms: at most what `max_tokens` can cost is authorised, and what was
/// used is settled. Send the same body again with `PAYMENT-SIGNATURE` and the request id of the 402.
#[utoipa::path(
    post, path = "/vendor/chat", tag = "Pay per call", params(schemas::RequestIdHeader, schemas::PaymentHeader),
    request_body(content = schemas::VendorChatRequest, example = json!({
        "model": "vendor-v4-flash", "max_tokens": 64, "messages": [{ "role": "user", "content": "Hello" }]
    })),
    responses(
        (status = 200, description = "The completion, as the provider wrote it", body = super::openapi::ChatCompletion),
        Errors, schemas::PaidResponses)
)]
async fn chat(State(app): AppState, request: Request) -> Response {
    operate(&app, Operation::Chat, request).await
}

/// Code between a prefix and a suffix, paid for by the call.
///
/// Paid like the chat completion.
#[utoipa::path(
    post, path = "/vendor/fim", tag = "Pay per call", params(schemas::RequestIdHeader, schemas::PaymentHeader),
    request_body(content = schemas::VendorFimRequest, example = json!({
        "model": "vendor-v4-pro", "max_tokens": 64, "prompt": "fn main() {", "suffix": "}"
    })),
    responses(
        (status = 200, description = "The completion, as the provider wrote it", body = schemas::TextCompletion),
        Errors, schemas::PaidResponses)
)]
async fn fim(State(app): AppState, request: Request) -> Response {
    operate(&app, Operation::Fim, request).await
}

/// The models that can be called, for a fixed fee of 0.003 USD.
#[utoipa::path(
    post, path = "/vendor/list-models", tag = "Pay per call",
    params(schemas::RequestIdHeader, schemas::PaymentHeader),
    request_body(content = Option<schemas::VendorListRequest>, example = json!({})),
    responses(
        (status = 200, description = "The models", body = schemas::VendorModels), Errors, schemas::PaidResponses)
)]
async fn list_models(State(app): AppState, request: Request) -> Response {
    operate(&app, Operation::ListModels, request).await
}

/// The receipt of a paid call. Who knows the request id may see it; receipts are kept for good.
#[utoipa::path(
    get, path = "/vendor/receipts/{receiptId}", tag = "Pay per call",
    params(("receiptId" = uuid::Uuid, Path, description = "`x-svc-receipt-id` of the answer"), schemas::RequiredRequestId),
    responses((status = 200, description = "The receipt", body = schemas::ReceiptEnvelope), Errors)
)]
async fn receipt(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let desk = desk(&app)?;
    let (parts, _body) = request.into_parts();
    let request_id = request_id(&app.names, &parts)?.ok_or_else(|| {
        let message = "send the request's id in this header: it is what lets you see the receipt";
        ApiError(AppError::invalid(app.names.request_id.as_str(), message))
    })?;
    let not_found = || ApiError::new(ErrorCode::NotFound, "there is no such receipt of this request");
    let id: ReceiptId = id.parse().map_err(|_invalid| not_found())?;
    Ok(no_store(&desk.receipt(id, request_id).await?))
}

/// The operations that are paid for by the call, alone.
#[utoipa::path(
    get, path = "/vendor/openapi.json", tag = "Service",
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value))
)]
async fn vendor_openapi(State(app): AppState) -> Response {
    vendor_doc::public(&app).into_response()
}

/// The routes with the configured path segment in the place of ours.
pub(super) fn under_its_name(app: &Arc<App>, router: Router) -> Router {
    let vendor = &app.service.config.server.vendor;
    if vendor == "vendor" {
        return router;
    }
    let prefix = format!("/{vendor}/");
    let rename = move |mut request: Request| {
        if request.uri().path().starts_with("/vendor/") {
            *request.uri_mut() = Uri::from_static("/-");
        } else if let Some(uri) = renamed(request.uri(), &prefix) {
            *request.uri_mut() = uri;
        }
        request
    };
    Router::new().fallback_service(tower::util::MapRequestLayer::new(rename).layer(router))
}

/// The address with our path segment, if it has the configured one.
fn renamed(uri: &Uri, prefix: &str) -> Option<Uri> {
    let rest = uri.path().strip_prefix(prefix)?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("/vendor/{rest}{query}").parse().ok()?);
    Uri::from_parts(parts).ok()
}

fn desk(app: &App) -> Result<&PaidCallDesk, ApiError> {
    let message = "nothing is paid for by the call here: the operator has not configured payments";
    let desk = app.service.paid_calls.as_ref();
    desk.ok_or_else(|| ApiError::new(ErrorCode::NotFound, message))
}

/// The request id in its header.
fn request_id(names: &HeaderNames, parts: &Parts) -> Result<Option<RequestId>, ApiError> {
    let name = &names.request_id;
    let wrong = || ApiError(AppError::invalid(name.as_str(), "must be one UUID"));
    let mut values = parts.headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    // In its usual form, and none that anybody would guess.
    let text = value.to_str().unwrap_or_default().trim();
    let id = Uuid::try_parse(text)
        .ok()
        .filter(|id| text.len() == uuid::fmt::Hyphenated::LENGTH && !id.is_nil() && !id.is_max());
    match (id.map(RequestId), values.next()) {
        (Some(id), None) => Ok(Some(id)),
        _ => Err(wrong()),
    }
}

/// What the request pays with.
fn payment(parts: &Parts) -> Result<Option<Offered>, ApiError> {
    let wrong = |detail: &str| ApiError(AppError::invalid("PAYMENT-SIGNATURE", detail));
    let mut values = parts.headers.get_all(PAYMENT_SIGNATURE).iter();
    if let Some(value) = values.next() {
        if values.next().is_some() {
            return Err(wrong("must be one header"));
        }
        let text = value.to_str().map_err(|_not_text| wrong("is no base64"))?;
        let payment = wire::from_header(text).map_err(|error| wrong(&format!("is no payment: {error}")))?;
        return Ok(Some(Offered::X402(Box::new(payment))));
    }
    let credentials = parts.headers.get_all(header::AUTHORIZATION).iter();
    let mut schemes = credentials
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim_start);
    Ok(schemes.find_map(|scheme| {
        let named = scheme.get(..MPP_SCHEME.len())?;
        let credential = scheme.get(MPP_SCHEME.len()..)?;
        named
            .eq_ignore_ascii_case(MPP_SCHEME)
            .then(|| Offered::Mpp(Box::new(mpp::Credential::read(credential))))
    }))
}

async fn operate(app: &Arc<App>, operation: Operation, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut known = None;
    let mut response = match run(app, operation, &parts, body, &mut known).await {
        Ok(response) => response,
        Err(refused) => refused.into_response(),
    };
    let headers = response.headers_mut();
    if let Some(id) = known {
        put(headers, &app.names.request_id, &id.to_string());
    }
    if app
        .service
        .paid_calls
        .as_ref()
        .is_some_and(PaidCallDesk::is_simulated)
    {
        headers.insert(app.names.simulated.clone(), HeaderValue::from_static("true"));
    }
    response
}

async fn run(
    app: &Arc<App>,
    operation: Operation,
    parts: &Parts,
    body: Body,
    known: &mut Option<RequestId>,
) -> Answered {
    let desk = desk(app)?;
    *known = request_id(&app.names, parts)?;
    // No body is a body without members, which each operation judges.
    let raw = read_json_body(&parts.headers, body, body_limits(app), true).await?;
    let request = PaidRequest {
        operation,
        raw,
        id: *known,
        payment: payment(parts)?,
    };
    *known = desk.request_id(&request)?;
    let reply = Box::pin(desk.call(request)).await?;
    written(app, reply).map_err(|error| ApiError(AppError::internal(&error)))
}

fn written(app: &App, reply: PaidReply) -> Result<Response, serde_json::Error> {
    let names = &app.names;
    match reply {
        PaidReply::Unpaid(unpaid) => unpaid_response(names, &unpaid),
        PaidReply::InProgress { id, state } => Ok(in_progress(names, id, state)),
        PaidReply::Answered { call, body } => {
            let mut response = settled(names, &call);
            *response.body_mut() = Body::from(body);
            Ok(response)
        }
        PaidReply::Withheld(call) => Ok(withheld(names, &call)),
    }
}

fn put(headers: &mut http::HeaderMap, name: &HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name.clone(), value);
    }
}

fn problem(status: StatusCode, body: &serde_json::Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    response
}

fn unpaid_response(names: &HeaderNames, unpaid: &Unpaid) -> Result<Response, serde_json::Error> {
    let terms = &unpaid.terms;
    let (status, title) = if unpaid.allowance_missing {
        (StatusCode::PRECONDITION_FAILED, "Permit2 Allowance Required")
    } else {
        (StatusCode::PAYMENT_REQUIRED, "Payment Required")
    };
    let mut body = json!({
        "type": format!("{PROBLEMS}{}", unpaid.problem),
        "title": title,
        "status": status.as_u16(),
        "detail": unpaid.detail,
        "requestId": terms.id,
        "maxAmount": terms.max.get().to_string(),
        "expiresAt": terms.expires_at,
    });
    if let (Some(reason), Some(members)) = (&terms.required.error, body.as_object_mut()) {
        members.insert("reason".to_owned(), json!(reason));
    }
    let mut response = problem(status, &body);
    let headers = response.headers_mut();
    put(headers, &PAYMENT_REQUIRED, &wire::to_header(&terms.required)?);
    put(headers, &names.request_id, &terms.id.to_string());
    if let Some(challenge) = &unpaid.challenge {
        put(headers, &header::WWW_AUTHENTICATE, &challenge.to_header());
    }
    Ok(response)
}

fn in_progress(names: &HeaderNames, id: RequestId, state: PaidCallState) -> Response {
    let body = json!({
        "requestId": id, "status": state, "retryAfterMs": RETRY_AFTER_SECS.saturating_mul(1000),
    });
    let mut response = no_store(&body);
    *response.status_mut() = StatusCode::ACCEPTED;
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECS));
    put(headers, &names.request_id, &id.to_string());
    response
}

fn settled(names: &HeaderNames, call: &PaidCall) -> Response {
    let mut response = StatusCode::OK.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("private, no-store"),
    );
    put(headers, &names.request_id, &call.id.to_string());
    put(headers, &names.receipt_id, &receipt_id(call).to_string());
    if let Some(settlement) = &call.settlement {
        put(
            headers,
            &PAYMENT_RESPONSE,
            &wire::encode(settlement.response.as_bytes()),
        );
        if call.payment.by == PaidBy::Mpp {
            let receipt = mpp::receipt(&settlement.transaction, settlement.at);
            put(headers, &PAYMENT_RECEIPT, &receipt);
        }
    }
    response
}

/// The work was done and the money did not come: no fresh terms, so that no client pays a second time by itself.
fn withheld(names: &HeaderNames, call: &PaidCall) -> Response {
    let body = json!({
        "type": format!("{PROBLEMS}verification-failed"),
        "title": "Payment Required",
        "status": 402,
        "detail": "the settlement was refused and nothing was taken; the answer is held back: send the same request \
                   again, which tries the settlement alone",
        "requestId": call.id,
        "maxAmount": call.payment.max.get().to_string(),
        "expiresAt": call.payment.valid_before,
    });
    let mut response = problem(StatusCode::PAYMENT_REQUIRED, &body);
    let headers = response.headers_mut();
    put(headers, &names.request_id, &call.id.to_string());
    put(headers, &names.receipt_id, &receipt_id(call).to_string());
    if let Some(refusal) = &call.refusal {
        put(headers, &PAYMENT_RESPONSE, &wire::encode(refusal.as_bytes()));
    }
    response
}
