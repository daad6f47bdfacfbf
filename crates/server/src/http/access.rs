//! Who may do what: the one table of routes, and the layer that asks every request for what its row demands.
//!
//! The rule: a handler runs only after its row was satisfied, and takes the caller from there. A route without a row
//! keeps the service from starting; a page without one answers with an error. The OpenAPI document and
//! `docs/authorisation.md` are written from the same rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use turnpike_app::limits::LimitClass;
use turnpike_app::sessions::Session;
use turnpike_app::{Actor, ActorCredential, AppError};
use turnpike_core::access::{AgentScope, Scope};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ledger::TenantStatus;
use utoipa::openapi::OpenApi;

use super::App;
use super::access_table::{PAGES, TABLE};
use super::caller::{Identified, identify, identify_person, require_step_up};
use super::problem::ApiError;
use super::serve::Peer;

pub(crate) use super::access_table::{Demand, Effect, Own, Rule};

static BY_PATH: LazyLock<BTreeMap<&'static str, Vec<&'static Rule>>> = LazyLock::new(|| {
    let mut rules: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for rule in TABLE.iter().chain(PAGES) {
        rules.entry(rule.path).or_default().push(rule);
    }
    rules
});

/// The row of a documented route.
pub(super) fn rule_of(method: &str, path: &str) -> Option<&'static Rule> {
    let rules = BY_PATH.get(path)?;
    rules.iter().copied().find(|rule| rule.method == method)
}

/// What differs between the documented routes and the table.
pub(super) fn differences(document: &OpenApi) -> Vec<String> {
    let documented: BTreeSet<String> = document
        .paths
        .paths
        .iter()
        .flat_map(|(path, item)| {
            super::openapi::operations(item).map(move |(method, _)| format!("{method} {path}"))
        })
        .collect();
    let listed: BTreeSet<String> = TABLE
        .iter()
        .map(|rule| format!("{} {}", rule.method, rule.path))
        .collect();
    documented.symmetric_difference(&listed).cloned().collect()
}

/// Who was let in.
#[derive(Clone)]
pub(super) enum Admitted {
    /// A caller of a workspace, with the dashboard session that it presents, if it presents one.
    Caller(Actor, Option<Arc<Session>>),
    /// A person, whatever workspaces they belong to.
    Person(Arc<Session>),
}

/// Asks a request for what its row demands, before its handler runs.
pub(super) async fn admit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let Some(rules) = request
        .extensions()
        .get::<MatchedPath>()
        .map(|path| BY_PATH.get(path.as_str()))
    else {
        return next.run(request).await;
    };
    let Some(rules) = rules else {
        return ApiError(AppError::internal(&"this path stands in no row of the table")).into_response();
    };
    let method = match *request.method() {
        Method::HEAD => Method::GET.as_str(),
        ref other => other.as_str(),
    };
    let Some(rule) = rules.iter().find(|rule| rule.method == method) else {
        // No handler runs without a row, whatever the router knows.
        return other_methods(rules);
    };
    let (mut parts, body) = request.into_parts();
    match Box::pin(judge(&app, rule, &parts)).await {
        Ok(Some(admitted)) => {
            parts.extensions.insert(admitted);
            next.run(Request::from_parts(parts, body)).await
        }
        Ok(None) => next.run(Request::from_parts(parts, body)).await,
        Err(refused) => refused.into_response(),
    }
}

/// The answer to a method that stands in no row of a path: which ones do.
fn other_methods(rules: &[&Rule]) -> Response {
    let mut methods: Vec<&str> = rules.iter().map(|rule| rule.method).collect();
    if methods.contains(&"GET") {
        methods.push("HEAD");
    }
    let mut response = StatusCode::METHOD_NOT_ALLOWED.into_response();
    if let Ok(allowed) = HeaderValue::try_from(methods.join(",")) {
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    response
}

async fn judge(app: &App, rule: &Rule, parts: &Parts) -> Result<Option<Admitted>, ApiError> {
    match rule.demand {
        Demand::Public | Demand::Signed => return Ok(None),
        Demand::Person => {
            let session = identify_person(app, parts).await?;
            if let Some(class) = rule.limit() {
                app.service.limits.check(class, &session.limit_key())?;
            }
            return Ok(Some(Admitted::Person(Arc::new(session))));
        }
        Demand::Caller
        | Demand::CallerOrMember
        | Demand::EndUser(_)
        | Demand::Workspace(_)
        | Demand::Shared(..) => {}
    }
    let Identified { mut actor, session } = identify(app, parts).await?;
    actor.origin = origin(parts);
    if let Some(class) = rule.limit() {
        app.service.limits.check(class, &actor.limit_key())?;
    }
    demand(app, rule, parts, &actor, session.as_ref()).await?;
    require_status(rule.effect, &actor)?;
    Ok(Some(Admitted::Caller(actor, session.map(Arc::new))))
}

async fn demand(
    app: &App,
    rule: &Rule,
    parts: &Parts,
    actor: &Actor,
    session: Option<&Session>,
) -> Result<(), ApiError> {
    match rule.demand {
        Demand::Public | Demand::Signed | Demand::Person => {}
        Demand::CallerOrMember if session.is_some() => actor.require(Scope::TenantRead)?,
        Demand::Caller | Demand::CallerOrMember if rule.effect == Effect::Read && actor.agent().is_some() => {
            actor.require_agent(AgentScope::Read)?;
        }
        Demand::Caller | Demand::CallerOrMember => drop(actor.require_caller()?),
        Demand::EndUser(scope) => drop(actor.require_end_user(scope)?),
        Demand::Shared(_, Own::EndUser(scope)) if is_end_user(actor) => {
            actor.require_end_user(scope)?;
        }
        Demand::Shared(_, Own::Agent(scope)) if actor.agent().is_some() => {
            actor.require_agent(scope)?;
        }
        Demand::Workspace(needs) | Demand::Shared(needs, _) => {
            if !needs.keys {
                actor.require_member()?;
            }
            if needs.administrator {
                actor.require_administrator()?;
            }
            actor.require(needs.scope)?;
            if let (true, Some(session)) = (needs.step_up, session) {
                require_step_up(app, parts, actor, session).await?;
            }
        }
    }
    Ok(())
}

const fn is_end_user(actor: &Actor) -> bool {
    matches!(actor.credential, ActorCredential::EndUser(_))
}

/// From where a request comes, for the audit log.
pub(super) fn origin(parts: &Parts) -> Arc<str> {
    let from = parts
        .extensions
        .get::<Peer>()
        .map(|Peer(address)| format!(" from {}", address.ip()));
    format!(
        "{} {}{}",
        parts.method,
        parts.uri.path(),
        from.unwrap_or_default()
    )
    .into()
}

/// Refuses what a workspace in its state may not do (decisions, section 10).
///
/// Suspended: reads only. Frozen: nothing that spends, tops up or pays out. Closed: its members may still read.
fn require_status(effect: Effect, actor: &Actor) -> Result<(), ApiError> {
    let by_member = matches!(actor.credential, ActorCredential::Member { .. });
    let status = actor.tenant.status;
    let allowed = match status {
        TenantStatus::Active => true,
        TenantStatus::Suspended => effect == Effect::Read,
        TenantStatus::Frozen => matches!(effect, Effect::Read | Effect::Manage),
        TenantStatus::Closed => effect == Effect::Read && by_member,
    };
    if allowed {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::TenantSuspended,
        format!("the workspace is {status}"),
    ))
}

/// The caller that the layer let in, with the rest of the request's head.
///
/// # Errors
/// `INTERNAL` for a route whose row lets in nobody of a workspace: it has no caller.
pub(super) fn admitted(request: Request) -> Result<(Actor, Parts), ApiError> {
    let (parts, _body) = request.into_parts();
    Ok((caller(&parts)?, parts))
}

/// The caller that the layer let in.
///
/// # Errors
/// As [`admitted`].
pub(super) fn caller(parts: &Parts) -> Result<Actor, ApiError> {
    match parts.extensions.get::<Admitted>() {
        Some(Admitted::Caller(actor, _session)) => Ok(actor.clone()),
        Some(Admitted::Person(_)) | None => Err(ApiError(AppError::internal(&"nobody was let in"))),
    }
}

/// The person that the layer let in.
///
/// # Errors
/// `INTERNAL` for a route whose row asks for somebody else.
pub(super) fn person(parts: &Parts) -> Result<Arc<Session>, ApiError> {
    match parts.extensions.get::<Admitted>() {
        Some(Admitted::Person(session)) => Ok(session.clone()),
        Some(Admitted::Caller(..)) | None => Err(ApiError(AppError::internal(&"no person was let in"))),
    }
}

/// The member that the layer let in, with the dashboard session.
///
/// # Errors
/// `INTERNAL` for a route whose row lets in anybody else.
pub(super) fn raised(parts: &Parts) -> Result<(Actor, Arc<Session>), ApiError> {
    match parts.extensions.get::<Admitted>() {
        Some(Admitted::Caller(actor, Some(session))) => Ok((actor.clone(), session.clone())),
        Some(Admitted::Caller(_, None) | Admitted::Person(_)) | None => {
            Err(ApiError(AppError::internal(&"no member was let in")))
        }
    }
}

impl Rule {
    /// What the request counts as; `None` where the use case has a limit of its own.
    fn limit(&self) -> Option<LimitClass> {
        match self.effect {
            _ if self.own_limit => None,
            Effect::Read => Some(LimitClass::Read),
            Effect::Spend if self.demand == Demand::Caller => Some(LimitClass::Call),
            Effect::TopUp => Some(LimitClass::Topup),
            Effect::Spend | Effect::Manage | Effect::PayOut => Some(LimitClass::Mutation),
        }
    }
}
