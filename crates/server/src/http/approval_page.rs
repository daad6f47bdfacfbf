//! The page at `/approve/{approvalId}`, where an owner or admin decides about a wish.
//!
//! It has the session of the identity pages and takes forms from itself alone. A decision needs a second factor of the
//! last ten minutes; the form asks for a code where the session has none. Where another provider signs people in, there
//! is no session here: the page says so and tells nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use turnpike_app::auth::LimitKey;
use turnpike_app::limits::{LimitClass, network_of};
use turnpike_app::{Actor, AppError};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ledger::approval::{Approval, ApprovalState};

use super::App;
use super::access::origin;
use super::body::{BodyLimits, read_form};
use super::checkout::{page, readable};
use super::identity::address;
use super::page_session::{Visitor, given, is_from_ourselves, session_token, visitor};
use super::problem::ApiError;
use super::routes::{AppState, Segments, body_limits};
use crate::identity::IdentityMode;
use crate::pages::{self, approval as views};

/// Largest form in bytes.
const MAX_FORM: usize = 16 * 1024;

/// What is answered instead of the page.
struct Refusal(Box<Response>);

impl From<AppError> for Refusal {
    fn from(error: AppError) -> Self {
        let (status, heading) = match error.code.status() {
            404 => (StatusCode::NOT_FOUND, "There is no such approval"),
            401 | 403 => (StatusCode::FORBIDDEN, "Not for you to decide"),
            other => (
                StatusCode::from_u16(other).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                "This did not work",
            ),
        };
        let text = pages::identity::sentence(&error.message);
        let mut response = page(status, views::message(heading, &text), &[]);
        if let Some(secs) = error.retry_after_secs {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        Self(Box::new(response))
    }
}

impl From<ApiError> for Refusal {
    fn from(ApiError(error): ApiError) -> Self {
        error.into()
    }
}

/// Somebody who may decide about an approval.
struct Decider {
    visitor: Visitor,
    actor: Actor,
    approval: Approval,
}

fn plain(status: StatusCode, html: String) -> Refusal {
    Refusal(Box::new(page(status, html, &[])))
}

/// Who asks, where they may decide about `id`.
async fn decider(app: &App, parts: &Parts, id: &str) -> Result<Decider, Refusal> {
    if !matches!(app.service.config.identity.mode, IdentityMode::Builtin) {
        return Err(plain(StatusCode::OK, views::elsewhere()));
    }
    let Some(visitor) = visitor(app, &parts.headers).await? else {
        return Err(plain(StatusCode::FORBIDDEN, views::sign_in(parts.uri.path())));
    };
    let service = &app.service;
    let tenant = service.approvals.tenant_of(id).await?;
    let member = service
        .authenticator
        .member(&visitor.session.subject, Some(tenant))
        .await;
    let mut actor = member.map_err(|error| {
        // Of another workspace's approval nothing is told.
        if error.code == ErrorCode::TenantNotMember {
            AppError::new(ErrorCode::NotFound, "there is no such approval")
        } else {
            error
        }
    })?;
    actor.require_administrator()?;
    actor.origin = origin(parts);
    let approval = service.approvals.find(tenant, id).await?;
    Ok(Decider {
        visitor,
        actor,
        approval,
    })
}

impl Decider {
    fn is_fresh(&self, app: &App) -> bool {
        let now = app.service.environment.now();
        self.visitor.session.require_fresh_mfa(now).is_ok()
    }

    fn render(&self, app: &App, error: Option<&AppError>) -> String {
        let approval = &self.approval;
        let tenant = &self.actor.tenant;
        let state = approval.state_at(app.service.environment.now());
        let can_be_taken_back = state == ApprovalState::Approved && approval.is_open();
        views::ApprovalPage {
            workspace: tenant.name.clone(),
            id: approval.id.to_string(),
            kind: approval.kind,
            state,
            can_be_taken_back,
            slug: approval.slug.to_string(),
            owner: approval.owner.to_string(),
            amount: approval.amount.map(|amount| {
                let credits = pages::credits(tenant.credits_per_dollar.credits(amount));
                (pages::dollars(amount), credits)
            }),
            args: approval.args.as_deref().map(str::to_owned),
            reason: approval.reason.as_deref().map(str::to_owned),
            asked_at: readable(approval.created_at),
            expires_at: readable(approval.expires_at),
            decided: approval.decided_at.map(|at| {
                (
                    readable(at),
                    approval.decided_by.as_deref().unwrap_or_default().to_owned(),
                )
            }),
            decision: approval.decision.as_deref().map(str::to_owned),
            is_fresh: self.is_fresh(app),
            error: error.map(|error| pages::identity::sentence(&error.message)),
        }
        .render()
    }
}

/// Shows what is to be decided.
pub(super) async fn show(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Response {
    let (parts, _body) = request.into_parts();
    match decider(&app, &parts, &id).await {
        Ok(decider) => page(StatusCode::OK, decider.render(&app, None), &[]),
        Err(Refusal(response)) => *response,
    }
}

/// Takes the decision.
pub(super) async fn decide(
    State(app): AppState,
    Segments(id): Segments<String>,
    request: Request,
) -> Response {
    match Box::pin(decided(&app, &id, request)).await {
        Ok(response) => response,
        Err(Refusal(response)) => *response,
    }
}

async fn decided(app: &Arc<App>, id: &str, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let limit = LimitKey::Network(network_of(address(&parts)));
    app.service.limits.check(LimitClass::SignIn, &limit)?;
    if !is_from_ourselves(&parts, &app.service.config.server.public_url) {
        let message =
            "This form was not sent from a page of this service. Open the page again and send it from there.";
        let html = views::message("Not accepted", message);
        return Err(plain(StatusCode::FORBIDDEN, html));
    }
    let mut decider = decider(app, &parts, id).await?;
    let limits = BodyLimits {
        bytes: MAX_FORM,
        ..body_limits(app)
    };
    let form: BTreeMap<String, String> = read_form(&parts.headers, body, limits)
        .await?
        .into_iter()
        .collect();
    let member = |name: &str| form.get(name).map_or("", |value| value.trim());
    let approve = match member("decision") {
        "approve" => true,
        "deny" => false,
        _ => return Err(AppError::invalid("decision", "must be approve or deny").into()),
    };
    let mut cookie = None;
    let done = async {
        if !decider.is_fresh(app) {
            let subject = &decider.visitor.session.subject;
            let people = &app.service.people;
            let signed_in = people
                .step_up(subject, member("code"), &decider.actor.origin)
                .await?;
            let token = session_token(app, &signed_in)?;
            cookie = given(&app.service.config.server.public_url, &token);
        }
        app.service.approvals.require_active(&decider.actor)?;
        let reason = member("reason");
        let body: Value = json!({ "reason": reason });
        let approvals = &app.service.approvals;
        approvals
            .decide(&decider.actor, id, approve, body.to_string().as_bytes())
            .await
            .map(drop)
    }
    .await;
    let mut response = match done {
        Ok(()) => {
            decider.approval = app.service.approvals.find(decider.actor.tenant.id, id).await?;
            page(StatusCode::OK, decider.render(app, None), &[])
        }
        // A code can be typed again; what else was wrong is said beside what is there now.
        Err(error) if error.code.status() < 500 => {
            decider.approval = app.service.approvals.find(decider.actor.tenant.id, id).await?;
            let status = match error.code.status() {
                401 => StatusCode::FORBIDDEN,
                other => StatusCode::from_u16(other).unwrap_or(StatusCode::BAD_REQUEST),
            };
            page(status, decider.render(app, Some(&error)), &[])
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}
