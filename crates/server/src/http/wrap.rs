//! The outermost layer: request ids, error bodies, the log line, metrics.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use tracing::Instrument as _;
use turnpike_app::AppError;
use turnpike_core::errors::ErrorCode;

use super::problem::{ApiError, render};
use super::{App, cors, oauth};
use crate::clock::request_id;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Wraps every request.
pub(crate) async fn wrap(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let id = request_id().to_string();
    let started = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let span = tracing::info_span!("request", request_id = id);
    let asks_state = matches!(request.uri().path(), "/healthz" | "/readyz");
    let is_resource = oauth::is_resource(request.uri().path());
    let origin = cors::origin(request.headers());
    let grant = if cors::is_open(request.uri().path()) {
        cors::Grant::given()
    } else {
        cors::Grant::default()
    };
    if origin.is_some() {
        request.extensions_mut().insert(grant.clone());
    }
    let preflight = cors::preflight(&app.origins, &request);
    let mut response = if app.draining.load(Ordering::Acquire) && !asks_state {
        draining()
    } else if let Some(answered) = preflight {
        answered
    } else {
        next.run(request).instrument(span).await
    };
    if let Some(ApiError(error)) = response.extensions_mut().remove::<ApiError>() {
        render(&mut response, &error, &id, &app.step_up_challenge);
        if is_resource && let Some(challenge) = oauth::challenge(&app, &error) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
    } else if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        let error = AppError::new(ErrorCode::MethodNotAllowed, "this path has other methods");
        render(&mut response, &error, &id, &app.step_up_challenge);
    }
    grant.open(&app.origins, origin.as_ref(), &mut response);
    if let Ok(value) = HeaderValue::try_from(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    let status = response.status().as_u16();
    let elapsed = started.elapsed();
    app.metrics.request(route, status, elapsed);
    let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    if status >= 500 {
        tracing::warn!(request_id = id, %method, route, status, elapsed_ms, "request failed");
    } else if app.service.config.telemetry.access_log {
        tracing::info!(request_id = id, %method, route, status, elapsed_ms, "request");
    } else {
        tracing::debug!(request_id = id, %method, route, status, elapsed_ms, "request");
    }
    response
}

/// What a request is told that comes after SIGTERM.
fn draining() -> Response {
    let error = AppError::new(
        ErrorCode::ServiceUnavailable,
        "this process is stopping: ask again",
    )
    .retry_after(1);
    let mut response = ApiError(error).into_response();
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// What a panic in a handler becomes; its message stays in the log.
pub(crate) fn panicked(_payload: Box<dyn std::any::Any + Send + 'static>) -> Response<Body> {
    ApiError(AppError::internal(&"a handler panicked")).into_response()
}
