//! Routes of dashboard sessions: raising one, ending it, and the keys that the built-in identity signs with.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use turnpike_core::errors::ErrorCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::access::{person, raised};
use super::body::read_json_body;
use super::openapi::Errors;
use super::problem::ApiError;
use super::routes::{Answered, AppState, body_limits, no_store};
use super::{schemas_sessions as schemas, schemas_users};

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(step_up))
        .routes(routes!(sign_out))
        .routes(routes!(identity_keys))
}

/// The step-up token that a request presents. Two of them, or bytes that are no text, are as good as a wrong one.
pub(super) fn presented<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let only = values.next().filter(|_| values.next().is_none())?;
    only.to_str().ok()
}

/// Gives a step-up token for a second factor that was shown a moment ago.
///
/// Other sessions of the same person may use it in this workspace, in the header `X-Svc-Step-Up-Token`.
#[utoipa::path(
    post, path = "/api/credits/step-up", tag = "Sessions", request_body = Option<schemas::StepUpRequest>,
    responses((status = 201, description = "The token, shown once", body = schemas::StepUpToken), Errors)
)]
async fn step_up(State(app): AppState, request: Request) -> Answered {
    let (parts, body) = request.into_parts();
    let (actor, session) = raised(&parts)?;
    let raw = read_json_body(&parts.headers, body, body_limits(&app), true).await?;
    let given = app.service.sessions.step_up(&actor, &session, &raw).await?;
    let mut response = no_store(&given);
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

/// Ends the session, and every step-up token of its person.
#[utoipa::path(
    post, path = "/api/credits/sign-out", tag = "Sessions", request_body = Option<schemas::SignOutRequest>,
    responses((status = 200, description = "The session works no more", body = schemas::SignedOut), Errors)
)]
async fn sign_out(State(app): AppState, request: Request) -> Answered {
    let (parts, body) = request.into_parts();
    let session = person(&parts)?;
    let raw = read_json_body(&parts.headers, body, body_limits(&app), true).await?;
    let ended = app.service.sessions.sign_out(&session, &raw).await?;
    Ok(no_store(&ended))
}

/// The public key of sessions that the built-in identity signs, as a JWK set (RFC 7517).
#[utoipa::path(
    get, path = "/identity/jwks.json", tag = "Service",
    responses(
        (status = 200, description = "The key", body = schemas_users::KeySet),
        (status = 404, description = "Another identity provider is configured"))
)]
async fn identity_keys(State(app): AppState) -> Result<Response, ApiError> {
    let Some(signer) = &app.service.signer else {
        return Err(ApiError::new(
            ErrorCode::NotFound,
            "another identity provider signs the sessions",
        ));
    };
    let mut response = Json(signer.jwks()).into_response();
    response.headers_mut().insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=60"),
    );
    Ok(response)
}
