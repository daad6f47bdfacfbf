//! The pages at `/identity`: how people join, sign in, show the second factor again and sign out.
//!
//! Only where this service signs people in; elsewhere there is nothing at these paths. Forms are taken from our own
//! pages only, and so many a minute from one address. A link's token is never in a log.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use turnpike_app::AppError;
use turnpike_app::auth::LimitKey;
use turnpike_app::limits::{LimitClass, network_of};
use turnpike_app::people::{Enrolled, RequestOrigin, SignedIn};
use turnpike_core::errors::ErrorCode;
use zeroize::Zeroizing;

use super::App;
use super::access::origin;
use super::body::{BodyLimits, read_form};
use super::checkout::{page, readable};
use super::page_session::{Visitor, given, is_from_ourselves, session_token, taken, visitor};
use super::problem::ApiError;
use super::routes::{AppState, body_limits, query};
use super::serve::Peer;
use crate::identity::IdentityMode;
use crate::pages::identity as views;

/// Largest form in bytes.
const MAX_FORM: usize = 16 * 1024;
const HOME: &str = "/identity";
const SIGN_IN: &str = "/identity/sign-in";

/// The pages of this module.
pub(super) fn pages(app: &Arc<App>) -> Router<Arc<App>> {
    Router::new()
        .route(HOME, get(home))
        .route("/identity/join", get(join).post(begin_joining))
        .route("/identity/accept", post(accept))
        .route("/identity/reset", get(reset).post(begin_reset))
        .route("/identity/enrolment", post(finish_enrolment))
        .route(SIGN_IN, get(sign_in).post(begin_sign_in))
        .route("/identity/sign-in/code", post(finish_sign_in))
        .route("/identity/step-up", get(step_up).post(finish_step_up))
        .route(
            "/identity/recovery-codes",
            get(recovery_codes).post(renew_recovery_codes),
        )
        .route("/identity/sign-out", post(sign_out))
        .route_layer(axum::middleware::from_fn_with_state(app.clone(), guard))
}

/// Lets through what these pages are for.
pub(super) async fn guard(State(app): AppState, request: Request, next: Next) -> Response {
    if !matches!(app.service.config.identity.mode, IdentityMode::Builtin) {
        let error = ApiError::new(ErrorCode::NotFound, "there is nothing at this path");
        return error.into_response();
    }
    let public_url = &app.service.config.server.public_url;
    let (parts, body) = request.into_parts();
    if parts.method == Method::POST {
        let key = LimitKey::Network(network_of(address(&parts)));
        if let Err(error) = app.service.limits.check(LimitClass::SignIn, &key) {
            return failed(&error);
        }
    }
    if parts.method == Method::POST && !is_from_ourselves(&parts, public_url) {
        let message =
            "This form was not sent from a page of this service. Open the page again and send it from there.";
        return shown(
            StatusCode::FORBIDDEN,
            views::message("Not accepted", message, None),
        );
    }
    next.run(Request::from_parts(parts, body)).await
}

/// Who is connected.
pub(super) fn address(parts: &Parts) -> IpAddr {
    let peer = parts.extensions.get::<Peer>();
    peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |Peer(address)| address.ip())
}

pub(super) fn shown(status: StatusCode, html: String) -> Response {
    page(status, html, &[])
}

pub(super) fn ok(html: String) -> Response {
    shown(StatusCode::OK, html)
}

pub(super) fn to(path: &str) -> Response {
    let mut response = Redirect::to(path).into_response();
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    response
}

/// The status of a page that says what was wrong. No page asks for a credential in a header, so none answers 401.
pub(super) fn status_of(error: &AppError) -> StatusCode {
    match error.code.status() {
        401 => StatusCode::FORBIDDEN,
        other => StatusCode::from_u16(other).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// A page that shows what was wrong with its form.
pub(super) fn refused(error: &AppError, html: String) -> Response {
    let mut response = shown(status_of(error), html);
    if let Some(secs) = error.retry_after_secs {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(secs));
    }
    response
}

/// A page of its own for what ends here.
fn failed(error: &AppError) -> Response {
    let heading = if error.code == ErrorCode::NotFound {
        "This link does not work"
    } else if error.code == ErrorCode::AlreadyExists {
        "Nothing to do"
    } else {
        "This did not work"
    };
    let html = views::message(heading, &views::sentence(&error.message), Some((HOME, "Go on")));
    refused(error, html)
}

/// Whether the form can be corrected and sent again.
fn is_correctable(error: &AppError) -> bool {
    matches!(
        error.code,
        ErrorCode::ValidationError
            | ErrorCode::InvalidCredential
            | ErrorCode::RateLimited
            | ErrorCode::AlreadyExists
            | ErrorCode::ServiceUnavailable
    )
}

/// What a handler gives: a page, or an error that becomes one.
pub(super) type Page = Result<Response, PageError>;

pub(super) struct PageError(AppError);

impl From<AppError> for PageError {
    fn from(error: AppError) -> Self {
        Self(error)
    }
}

impl From<ApiError> for PageError {
    fn from(ApiError(error): ApiError) -> Self {
        Self(error)
    }
}

impl axum::response::IntoResponse for PageError {
    fn into_response(self) -> Response {
        failed(&self.0)
    }
}

/// The members of a form; of one that stands twice, the first.
#[derive(Default)]
pub(super) struct Form(BTreeMap<String, Zeroizing<String>>);

impl Form {
    pub(super) async fn read(app: &App, request: Request) -> Result<(Parts, Self), PageError> {
        let (parts, body) = request.into_parts();
        let limits = BodyLimits {
            bytes: MAX_FORM,
            ..body_limits(app)
        };
        let mut members = BTreeMap::new();
        for (name, value) in read_form(&parts.headers, body, limits).await? {
            members.entry(name).or_insert(Zeroizing::new(value));
        }
        Ok((parts, Self(members)))
    }

    /// What stands in a field; empty when it is not there.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |value| value.as_str())
    }

    /// What stands in a field, if it is there.
    pub(super) fn opt(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.as_str())
    }

    fn secret(&self, name: &str) -> Zeroizing<String> {
        self.0.get(name).cloned().unwrap_or_default()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LinkQuery {
    token: String,
    join: String,
    authorize: String,
}

/// Gives the session of who is signed in now.
pub(super) fn with_session(
    app: &App,
    signed_in: &SignedIn,
    mut response: Response,
) -> Result<Response, AppError> {
    let token = session_token(app, signed_in).map_err(|error| AppError::internal(&error))?;
    if let Some(cookie) = given(&app.service.config.server.public_url, &token) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Who is signed in and what there is to do.
async fn home(State(app): AppState, request: Request) -> Page {
    let Some(visitor) = visitor(&app, request.headers()).await? else {
        return Ok(to(SIGN_IN));
    };
    let subject = visitor.session.subject.clone();
    let Some(profile) = app.service.people.profile(&subject).await? else {
        return Ok(to(SIGN_IN));
    };
    let now = app.service.environment.now();
    let factor_at = visitor
        .session
        .auth_time
        .map(|secs| turnpike_core::time::Timestamp::from_millis(secs.saturating_mul(1000)));
    let html = views::HomePage {
        login: profile.login,
        subject,
        workspaces: profile
            .workspaces
            .into_iter()
            .map(|(member, tenant)| views::Workspace {
                name: tenant.name,
                id: tenant.id.to_string(),
                role: member.role.to_string(),
                status: tenant.status.to_string(),
            })
            .collect(),
        factor_at: factor_at.map_or_else(|| "never".to_owned(), readable),
        is_fresh: visitor.session.require_fresh_mfa(now).is_ok(),
        recovery_codes: profile.recovery_codes,
        token: visitor.token,
    };
    Ok(ok(html.render()))
}

/// Shows what an invitation is for.
async fn join(State(app): AppState, request: Request) -> Page {
    let (parts, _body) = request.into_parts();
    let asked: LinkQuery = query(&parts)?;
    let visitor = visitor(&app, &parts.headers).await?;
    let html = join_page(&app, &asked.token, "", None, visitor.as_ref()).await?;
    Ok(ok(html))
}

async fn join_page(
    app: &App,
    token: &str,
    login: &str,
    error: Option<&AppError>,
    visitor: Option<&Visitor>,
) -> Result<String, AppError> {
    let people = &app.service.people;
    let (invitation, tenant) = people.invitations.open(token).await?;
    let signed_in = match visitor {
        Some(visitor) => people.profile(&visitor.session.subject).await?,
        None => None,
    };
    let html = views::JoinPage {
        workspace: tenant.name,
        role: invitation.role.to_string(),
        token: token.to_owned(),
        login: login.to_owned(),
        signed_in: signed_in.map(|profile| profile.login),
        error: error.map(|error| views::sentence(&error.message)),
    };
    Ok(html.render())
}

/// Takes the login and password of who joins.
async fn begin_joining(State(app): AppState, request: Request) -> Page {
    let (_parts, form) = Form::read(&app, request).await?;
    let (token, login) = (form.get("token"), form.get("login"));
    let begun = match same_twice(&form) {
        Ok(password) => app.service.people.begin_joining(token, login, password).await,
        Err(error) => Err(error),
    };
    match begun {
        Ok(enrolment) => Ok(ok(views::enrolment(&enrolment, None)?)),
        Err(error) if is_correctable(&error) => {
            let html = join_page(&app, token, login, Some(&error), None).await?;
            Ok(refused(&error, html))
        }
        Err(error) => Err(error.into()),
    }
}

/// The password that was typed twice.
fn same_twice(form: &Form) -> Result<Zeroizing<String>, AppError> {
    if form.get("password") == form.get("repeated") {
        Ok(form.secret("password"))
    } else {
        Err(AppError::new(
            ErrorCode::ValidationError,
            "the two passwords are not the same",
        ))
    }
}

/// Who is signed in joins another workspace.
async fn accept(State(app): AppState, request: Request) -> Page {
    let (parts, form) = Form::read(&app, request).await?;
    let Some(visitor) = visitor(&app, &parts.headers).await? else {
        return Ok(to(SIGN_IN));
    };
    let (subject, token) = (&visitor.session.subject, form.get("token"));
    let invitations = &app.service.people.invitations;
    invitations.accept(subject, token, &origin(&parts)).await?;
    Ok(to(HOME))
}

/// Shows the form of who begins anew.
async fn reset(State(app): AppState, request: Request) -> Page {
    let (parts, _body) = request.into_parts();
    let asked: LinkQuery = query(&parts)?;
    let person = app.service.people.resetting(&asked.token).await?;
    Ok(ok(views::reset(&person.login, &asked.token, None)))
}

/// Takes the new password.
async fn begin_reset(State(app): AppState, request: Request) -> Page {
    let (_parts, form) = Form::read(&app, request).await?;
    let (people, token) = (&app.service.people, form.get("token"));
    let begun = match same_twice(&form) {
        Ok(password) => people.begin_reset(token, password).await,
        Err(error) => Err(error),
    };
    match begun {
        Ok(enrolment) => Ok(ok(views::enrolment(&enrolment, None)?)),
        Err(error) if is_correctable(&error) => {
            let person = people.resetting(token).await?;
            let html = views::reset(&person.login, token, Some(&views::sentence(&error.message)));
            Ok(refused(&error, html))
        }
        Err(error) => Err(error.into()),
    }
}

/// Takes the first code, and shows the recovery codes.
async fn finish_enrolment(State(app): AppState, request: Request) -> Page {
    let (parts, form) = Form::read(&app, request).await?;
    let (people, ticket) = (&app.service.people, form.get("ticket"));
    let from = RequestOrigin {
        address: address(&parts),
        text: origin(&parts),
    };
    match people.finish_enrolment(ticket, form.get("code"), &from).await {
        Ok(Enrolled {
            signed_in,
            recovery_codes,
        }) => {
            tracing::info!(subject = signed_in.subject, "somebody set up a second factor");
            Ok(with_session(
                &app,
                &signed_in,
                ok(views::recovery(&recovery_codes)),
            )?)
        }
        // Of what took too long, nothing can be shown again.
        Err(error) if error.code == ErrorCode::ValidationError => {
            let enrolment = people.enrolment(ticket)?;
            let html = views::enrolment(&enrolment, Some(&views::sentence(&error.message)))?;
            Ok(refused(&error, html))
        }
        Err(error) => Err(error.into()),
    }
}

/// Shows the sign-in form.
async fn sign_in(State(app): AppState, request: Request) -> Page {
    let (parts, _body) = request.into_parts();
    let asked: LinkQuery = query(&parts)?;
    let onward = views::Onward {
        join: &asked.join,
        authorize: &asked.authorize,
    };
    if visitor(&app, &parts.headers).await?.is_some() && asked.join.is_empty() {
        return Ok(to(&home_or_agents(&asked.authorize)));
    }
    Ok(ok(views::sign_in("", &onward, None)))
}

/// Where somebody goes who has signed in.
fn home_or_agents(request: &str) -> String {
    // Sealed and encoded by us; anything else is no request.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if request.is_empty() || !request.bytes().all(plain) {
        return HOME.to_owned();
    }
    format!("{}?request={request}", super::oauth::CONSENT)
}

/// What follows a sign-in, as the form says.
fn onward(form: &Form) -> views::Onward<'_> {
    views::Onward {
        join: form.get("join"),
        authorize: form.get("authorize"),
    }
}

/// Takes login and password.
async fn begin_sign_in(State(app): AppState, request: Request) -> Page {
    let (parts, form) = Form::read(&app, request).await?;
    let (login, onward) = (form.get("login"), onward(&form));
    let begun = app
        .service
        .people
        .begin_sign_in(login, form.secret("password"), address(&parts))
        .await;
    match begun {
        Ok(ticket) => Ok(ok(views::code(&ticket, &onward, None))),
        Err(error) if is_correctable(&error) => {
            let html = views::sign_in(login, &onward, Some(&views::sentence(&error.message)));
            Ok(refused(&error, html))
        }
        Err(error) => Err(error.into()),
    }
}

/// Takes the second factor.
async fn finish_sign_in(State(app): AppState, request: Request) -> Page {
    let (_parts, form) = Form::read(&app, request).await?;
    let (ticket, onward) = (form.get("ticket"), onward(&form));
    let join = onward.join;
    let people = &app.service.people;
    match people.finish_sign_in(ticket, form.get("code")).await {
        Ok(signed_in) if join.is_empty() => Ok(with_session(
            &app,
            &signed_in,
            to(&home_or_agents(onward.authorize)),
        )?),
        Ok(signed_in) => {
            let profile = people.profile(&signed_in.subject).await?;
            let (invitation, tenant) = people.invitations.open(join).await?;
            let html = views::JoinPage {
                workspace: tenant.name,
                role: invitation.role.to_string(),
                token: join.to_owned(),
                login: String::new(),
                signed_in: profile.map(|profile| profile.login),
                error: None,
            };
            Ok(with_session(&app, &signed_in, ok(html.render()))?)
        }
        Err(error) if error.members.contains_key("details") || error.code == ErrorCode::RateLimited => {
            let html = views::code(ticket, &onward, Some(&views::sentence(&error.message)));
            Ok(refused(&error, html))
        }
        Err(error) => Err(error.into()),
    }
}

/// Asks for a code of who is signed in.
async fn step_up(State(app): AppState, request: Request) -> Page {
    if visitor(&app, request.headers()).await?.is_none() {
        return Ok(to(SIGN_IN));
    }
    Ok(ok(views::step_up(None)))
}

/// Takes the code, and gives a session that begins now.
async fn finish_step_up(State(app): AppState, request: Request) -> Page {
    let (parts, form) = Form::read(&app, request).await?;
    let Some(visitor) = visitor(&app, &parts.headers).await? else {
        return Ok(to(SIGN_IN));
    };
    let (people, subject) = (&app.service.people, &visitor.session.subject);
    match people.step_up(subject, form.get("code"), &origin(&parts)).await {
        Ok(signed_in) => Ok(with_session(&app, &signed_in, to(HOME))?),
        Err(error) if is_correctable(&error) => {
            let html = views::step_up(Some(&views::sentence(&error.message)));
            Ok(refused(&error, html))
        }
        Err(error) => Err(error.into()),
    }
}

/// Asks for a code of who wants other recovery codes.
async fn recovery_codes(State(app): AppState, request: Request) -> Page {
    if visitor(&app, request.headers()).await?.is_none() {
        return Ok(to(SIGN_IN));
    }
    Ok(ok(views::renewal(None)))
}

/// Takes the code, and shows other recovery codes.
async fn renew_recovery_codes(State(app): AppState, request: Request) -> Page {
    let (parts, form) = Form::read(&app, request).await?;
    let Some(visitor) = visitor(&app, &parts.headers).await? else {
        return Ok(to(SIGN_IN));
    };
    let people = &app.service.people;
    let renewed = people
        .renew_recovery_codes(&visitor.session.subject, form.get("code"), &origin(&parts))
        .await;
    match renewed {
        Ok(codes) => Ok(ok(views::recovery(&codes))),
        Err(error) if is_correctable(&error) => {
            let html = views::renewal(Some(&views::sentence(&error.message)));
            Ok(refused(&error, html))
        }
        Err(error) => Err(error.into()),
    }
}

/// Ends every session of who is signed in.
async fn sign_out(State(app): AppState, request: Request) -> Page {
    if let Some(visitor) = visitor(&app, request.headers()).await? {
        app.service.sessions.sign_out(&visitor.session, b"").await?;
        app.service.authenticator.forget();
    }
    let message = "You are signed out, everywhere.";
    let mut response = ok(views::message(
        "Signed out",
        message,
        Some((SIGN_IN, "Sign in again")),
    ));
    if let Some(cookie) = taken(&app.service.config.server.public_url) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}
