//! The authorization server on the wire: metadata, registration, the pages where a member agrees, and tokens.
//!
//! `/oauth/authorize` is opened from elsewhere, so the browser sends it no cookie of ours: it checks the request and leads
//! on to a page of ours, where the member signs in and agrees. The rules are the app's.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;
use turnpike_app::AppError;
use turnpike_app::auth::LimitKey;
use turnpike_app::limits::{LimitClass, network_of};
use turnpike_app::oauth::{Choice, MCP_PATH, OAuthError, Refusal};
use turnpike_core::access::Scope;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::TenantId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::access::origin;
use super::body::{BodyLimits, read_form, read_json_body};
use super::checkout::page;
use super::identity::{Form, Page, address, guard, ok, refused, shown, to, with_session};
use super::openapi::Errors;
use super::page_session::{Visitor, visitor};
use super::problem::ApiError;
use super::routes::{Answered, AppState, body_limits, query};
use super::schemas_agents as schemas;
use crate::pages::identity as views;
use crate::pages::oauth::{ConsentPage, Place, leads_on};

/// Where a member agrees.
pub(super) const CONSENT: &str = "/identity/authorize";
/// Largest registration or form in bytes.
const MAX_BODY: usize = 64 * 1024;

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(server_metadata))
        .routes(routes!(resource_metadata))
        .routes(routes!(mcp_metadata))
}

/// What the protocols themselves describe, and the pages.
pub(super) fn pages(app: &Arc<App>) -> Router<Arc<App>> {
    let consent = Router::new()
        .route(CONSENT, get(consent).post(answer))
        .route_layer(axum::middleware::from_fn_with_state(app.clone(), guard));
    Router::new()
        .route("/oauth/authorize", get(authorize))
        .route("/oauth/register", post(register))
        .route("/oauth/token", post(token))
        .route("/oauth/revoke", post(revoke))
        .merge(consent)
}

/// Whether any page may ask this path: none of them looks at a cookie.
pub(super) fn is_open(path: &str) -> bool {
    path.starts_with("/.well-known/oauth-")
        || matches!(path, "/oauth/register" | "/oauth/token" | "/oauth/revoke")
}

/// What `WWW-Authenticate` says at the MCP endpoint (RFC 9728, section 5.1; RFC 6750, section 3.1); `None` for errors that
/// another credential would not help.
pub(super) fn challenge(app: &App, error: &AppError) -> Option<HeaderValue> {
    let metadata = app.service.oauth.resource_metadata_url();
    let text = if error.code == ErrorCode::Unauthenticated {
        format!("Bearer resource_metadata=\"{metadata}\"")
    } else if error.code == ErrorCode::InsufficientScope {
        let needed = error
            .members
            .get("requiredScopes")
            .and_then(|scopes| scopes.get(0));
        let needed = needed.and_then(serde_json::Value::as_str).unwrap_or_default();
        format!("Bearer error=\"insufficient_scope\", scope=\"{needed}\", resource_metadata=\"{metadata}\"")
    } else if error.code.status() == 401 {
        format!("Bearer error=\"invalid_token\", resource_metadata=\"{metadata}\"")
    } else {
        return None;
    };
    HeaderValue::try_from(text).ok()
}

/// Whether requests for `path` are told how to get a credential by [`challenge`].
pub(super) fn is_resource(path: &str) -> bool {
    path == MCP_PATH
}

fn no_pages() -> ApiError {
    let message =
        "people sign in elsewhere, so nobody can agree here: make an agent connection and use its secret";
    ApiError::new(ErrorCode::NotFound, message)
}

/// Refuses everything where this service does not sign people in, and whoever asks too often.
fn admit(app: &App, parts: &http::request::Parts, class: LimitClass) -> Result<(), ApiError> {
    if !app.service.oauth.is_open() {
        return Err(no_pages());
    }
    let key = LimitKey::Network(network_of(address(parts)));
    Ok(app.service.limits.check(class, &key)?)
}

/// Describes the authorization server for agents (RFC 8414).
#[utoipa::path(
    get, path = "/.well-known/oauth-authorization-server", tag = "Agent connections",
    responses((status = 200, description = "The metadata", body = schemas::ServerMetadata), Errors)
)]
async fn server_metadata(State(app): AppState) -> Answered {
    if !app.service.oauth.is_open() {
        return Err(no_pages());
    }
    Ok(Json(app.service.oauth.server_metadata()).into_response())
}

/// Describes the MCP endpoint as a protected resource (RFC 9728).
#[utoipa::path(
    get, path = "/.well-known/oauth-protected-resource", tag = "Agent connections",
    responses((status = 200, description = "The metadata", body = schemas::ResourceMetadata), Errors)
)]
async fn resource_metadata(State(app): AppState) -> Answered {
    Ok(Json(app.service.oauth.resource_metadata()).into_response())
}

/// Describes the MCP endpoint as a protected resource, at the place that follows from its path.
#[utoipa::path(
    get, path = "/.well-known/oauth-protected-resource/api/credits/mcp", tag = "Agent connections",
    responses((status = 200, description = "The metadata", body = schemas::ResourceMetadata), Errors)
)]
async fn mcp_metadata(State(app): AppState) -> Answered {
    Ok(Json(app.service.oauth.resource_metadata()).into_response())
}

/// An answer of the authorization server.
fn told(status: StatusCode, body: &serde_json::Value) -> Response {
    let mut response = (status, Json(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    response
}

fn refusal(error: &OAuthError) -> Response {
    let status = StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let body = json!({ "error": error.code.as_str(), "error_description": error.description });
    told(status, &body)
}

fn limits(app: &App) -> BodyLimits {
    BodyLimits {
        bytes: MAX_BODY,
        ..body_limits(app)
    }
}

/// Registers a client (RFC 7591).
async fn register(State(app): AppState, request: Request) -> Answered {
    let (parts, body) = request.into_parts();
    admit(&app, &parts, LimitClass::Mutation)?;
    let raw = read_json_body(&parts.headers, body, limits(&app), false).await?;
    Ok(match app.service.oauth.register(&raw).await {
        Ok(client) => told(StatusCode::CREATED, &client),
        Err(error) => refusal(&error),
    })
}

/// Gives tokens (RFC 6749, section 3.2).
async fn token(State(app): AppState, request: Request) -> Answered {
    let (parts, body) = request.into_parts();
    admit(&app, &parts, LimitClass::Read)?;
    let form = read_form(&parts.headers, body, limits(&app)).await?;
    Ok(match app.service.oauth.exchange(&form).await {
        Ok(tokens) => told(StatusCode::OK, &tokens),
        Err(error) => refusal(&error),
    })
}

/// Ends what a token was given for (RFC 7009).
async fn revoke(State(app): AppState, request: Request) -> Answered {
    let (parts, body) = request.into_parts();
    admit(&app, &parts, LimitClass::Read)?;
    let form = read_form(&parts.headers, body, limits(&app)).await?;
    Ok(match app.service.oauth.revoke(&form).await {
        Ok(ended) => {
            if ended {
                app.service.authenticator.forget();
            }
            told(StatusCode::OK, &json!({}))
        }
        Err(error) => refusal(&error),
    })
}

/// Checks what a client asks for and leads on to where a member agrees.
async fn authorize(State(app): AppState, request: Request) -> Page {
    let (parts, _body) = request.into_parts();
    if !app.service.oauth.is_open() {
        let text = "People sign in to this service elsewhere, so nothing can be agreed to here. Ask an administrator of \
                    your workspace for an agent connection, and give its secret to the agent.";
        return Ok(shown(
            StatusCode::NOT_IMPLEMENTED,
            views::message("Agents cannot be connected here", text, None),
        ));
    }
    admit(&app, &parts, LimitClass::Read)?;
    let asked = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
    match app.service.oauth.begin(&asked.into_owned().collect()).await {
        Ok((sealed, asked)) => Ok(ok(leads_on(
            &asked.client_name,
            &format!("{CONSENT}?request={sealed}"),
        ))),
        Err(Refusal::Back(url)) => Ok(to(&url)),
        Err(Refusal::Here(error)) => {
            let text = views::sentence(&error.message);
            Ok(refused(
                &error,
                views::message("This cannot be connected", &text, None),
            ))
        }
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct ConsentQuery {
    request: String,
}

/// Asks the member.
async fn consent(State(app): AppState, request: Request) -> Page {
    let (parts, _body) = request.into_parts();
    let asked: ConsentQuery = query(&parts)?;
    // Whether it is over is said before anybody signs in for it.
    app.service.oauth.asked(&asked.request)?;
    let Some(visitor) = visitor(&app, &parts.headers).await? else {
        return Ok(to(&format!("/identity/sign-in?authorize={}", asked.request)));
    };
    consent_page(&app, &visitor, &asked.request, &Form::default(), None).await
}

async fn consent_page(
    app: &App,
    visitor: &Visitor,
    sealed: &str,
    form: &Form,
    error: Option<&AppError>,
) -> Page {
    let asked = app.service.oauth.asked(sealed)?;
    let Some(profile) = app.service.people.profile(&visitor.session.subject).await? else {
        return Ok(to("/identity/sign-in"));
    };
    let workspaces: Vec<Place> = profile
        .workspaces
        .iter()
        .filter(|(member, _)| member.role.scopes().contains(&Scope::TokensManage))
        .map(|(member, tenant)| Place {
            id: tenant.id.to_string(),
            name: tenant.name.clone(),
            whole: member.role.scopes().contains(&Scope::CredentialsManage),
        })
        .collect();
    let now = app.service.environment.now();
    let html = ConsentPage {
        client: asked.client_name,
        destination: asked.destination,
        executes: asked
            .scopes
            .agent
            .contains(&turnpike_core::access::AgentScope::Execute),
        lasts: asked.scopes.offline,
        login: profile.login,
        request: sealed.to_owned(),
        workspaces,
        chosen: form.get("workspace").to_owned(),
        external_user_id: form.get("external_user_id").to_owned(),
        max_usd: form.opt("max_usd").unwrap_or("10").to_owned(),
        days: form.opt("days").unwrap_or("90").to_owned(),
        wants_code: visitor.session.require_fresh_mfa(now).is_err(),
        error: error.map(|error| views::sentence(&error.message)),
    };
    let status = error.map_or(StatusCode::OK, super::identity::status_of);
    Ok(page(status, html.render(), &[Some(&asked.redirect_uri)]))
}

/// Takes the member's answer.
async fn answer(State(app): AppState, request: Request) -> Page {
    let (parts, form) = Form::read(&app, request).await?;
    let sealed = form.get("request");
    app.service.oauth.asked(sealed)?;
    let Some(visitor) = visitor(&app, &parts.headers).await? else {
        return Ok(to(&format!("/identity/sign-in?authorize={sealed}")));
    };
    if form.get("answer") != "agree" {
        return Ok(to(&app.service.oauth.decline(sealed)?));
    }
    match agreed(&app, &parts, &visitor, &form).await {
        Ok(response) => Ok(response),
        Err(error) if error.code.status() < 500 => {
            consent_page(&app, &visitor, sealed, &form, Some(&error)).await
        }
        Err(error) => Err(error.into()),
    }
}

/// The member agrees, with a second factor of the last ten minutes.
async fn agreed(
    app: &App,
    parts: &http::request::Parts,
    visitor: &Visitor,
    form: &Form,
) -> Result<Response, AppError> {
    let (service, subject) = (&app.service, &visitor.session.subject);
    let origin = origin(parts);
    let tenant = form
        .get("workspace")
        .parse::<TenantId>()
        .map_err(|_no_uuid| AppError::invalid("workspace", "choose one"))?;
    let raised = if visitor
        .session
        .require_fresh_mfa(service.environment.now())
        .is_err()
    {
        Some(service.people.step_up(subject, form.get("code"), &origin).await?)
    } else {
        None
    };
    let mut actor = service.authenticator.member(subject, Some(tenant)).await?;
    actor.origin = origin;
    let choice = Choice {
        external_user_id: form.get("external_user_id").to_owned(),
        max_usd: form.get("max_usd").to_owned(),
        max_usd_per_call: form.get("max_usd_per_call").to_owned(),
        days: form.get("days").to_owned(),
    };
    let url = service.oauth.agree(&actor, form.get("request"), &choice).await?;
    let response = to(&url);
    match raised {
        Some(signed_in) => with_session(app, &signed_in, response),
        None => Ok(response),
    }
}
