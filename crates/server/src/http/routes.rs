//! The routes: which path is which use case.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::{FromRequestParts, Path, Query, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{HeaderValue, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tower_http::catch_panic::CatchPanicLayer;
use turnpike_app::paging::Page;
use turnpike_app::reads::BalanceView;
use turnpike_app::{Actor, AppError};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{CallId, ExternalUserId};
use turnpike_core::ledger::Payer;
use turnpike_core::ledger::command::OutcomeKind;
use turnpike_core::time::Timestamp;
use turnpike_store::{UsageFilter, UsageGroup};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::access::{admit, admitted, caller, differences};
use super::answer::{chat_response, tool_response};
use super::body::{BodyLimits, read_json_body};
use super::caller::{call_context, paying, sees_cost};
use super::openapi::{self, Errors};
use super::problem::ApiError;
use super::wrap::{panicked, wrap};
use super::{
    agents, approval_page, approvals, catalogue, checkout, connect, end_users, header_params, identity,
    invitations, keys, mcp, oauth, payouts, pricing, quotes, sessions, tokens, tools, topups, vendor,
    vendor_doc, webhooks, workspace,
};
use crate::pages::{ICON_PATH, STYLESHEET_PATH};
use crate::service::SetupError;

pub(super) type AppState = State<Arc<App>>;
pub(super) type Answered = Result<Response, ApiError>;

/// The documented routes.
pub(super) fn documented() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(chat_completions))
        .routes(routes!(models))
        .routes(routes!(execute))
        .routes(routes!(balance))
        .routes(routes!(ledger))
        .routes(routes!(usage))
        .routes(routes!(call))
        .routes(routes!(call_result))
        .routes(routes!(get_settings, put_settings))
        .routes(routes!(topups::open_own))
        .routes(routes!(topups::own_session))
        .routes(routes!(topups::open_pool))
        .routes(routes!(topups::list))
        .routes(routes!(topups::session))
        .routes(routes!(topups::refund))
        .routes(routes!(topups::get_auto, topups::put_auto))
        .routes(routes!(topups::processor_event))
        .merge(payouts::routes())
        .merge(end_users::routes())
        .merge(invitations::routes())
        .merge(sessions::routes())
        .merge(tokens::routes())
        .merge(tools::routes())
        .merge(webhooks::routes())
        .merge(keys::routes())
        .merge(agents::routes())
        .merge(oauth::routes())
        .merge(mcp::routes())
        .merge(catalogue::routes())
        .merge(pricing::routes())
        .merge(quotes::routes())
        .merge(approvals::routes())
        .merge(workspace::routes())
        .merge(vendor::routes())
        .routes(routes!(openapi_json))
        .routes(routes!(llms_txt))
        .routes(routes!(healthz))
        .routes(routes!(readyz))
}

/// Everything that is served.
///
/// # Errors
/// When the documented routes are not those of the table that says who may use them.
pub(crate) fn router(app: &Arc<App>) -> Result<Router, SetupError> {
    let (router, document) = documented().split_for_parts();
    let differing = differences(&document);
    if !differing.is_empty() {
        let message = format!("routes and table differ: {}", differing.join(", "));
        return Err(SetupError::Other(message));
    }
    let router = router
        .route("/checkout/{session}", get(checkout::show))
        .route("/checkout/{session}/pay", post(checkout::pay))
        .route("/checkout/{session}/decline", post(checkout::decline))
        .route("/checkout/{session}/result", get(checkout::result))
        .route("/connect/done", get(connect::done))
        .route("/connect/again", get(connect::again))
        .route("/connect/{account}", get(connect::show).post(connect::connect))
        .route(
            "/approve/{approval}",
            get(approval_page::show).post(approval_page::decide),
        )
        .route(STYLESHEET_PATH, get(checkout::stylesheet))
        .route(ICON_PATH, get(checkout::icon))
        .merge(identity::pages(app))
        .merge(oauth::pages(app))
        .fallback(not_found)
        .layer(axum::middleware::from_fn_with_state(app.clone(), admit))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(axum::middleware::from_fn_with_state(app.clone(), wrap))
        .with_state(app.clone());
    Ok(vendor::under_its_name(app, router))
}

async fn not_found() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "there is nothing at this path")
}

/// The parameters of a path; one that does not decode is no path of ours.
pub(super) struct Segments<T>(pub(super) T);

impl<T, S> FromRequestParts<S> for Segments<T>
where
    T: serde::de::DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut http::request::Parts, state: &S) -> Result<Self, ApiError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(segments)) => Ok(Self(segments)),
            Err(_undecodable) => Err(not_found().await),
        }
    }
}

pub(super) fn body_limits(app: &App) -> BodyLimits {
    let server = &app.service.config.server;
    BodyLimits {
        bytes: server.max_body_bytes,
        timeout: Duration::from_secs(server.body_timeout_secs),
    }
}

/// A failed call: its id where there is one, and that it charged nothing where that is so.
fn failed(app: &App, error: AppError) -> Response {
    let charged_earlier = matches!(
        error.code,
        ErrorCode::ResultExpired | ErrorCode::IdempotencyInProgress | ErrorCode::IdempotencyKeyConflict
    );
    let call = error
        .members
        .get("callId")
        .and_then(Value::as_str)
        .map(HeaderValue::from_str);
    let mut response = ApiError(error).into_response();
    if let Some(Ok(call)) = call {
        response.headers_mut().insert(app.names.call_id.clone(), call);
    }
    if !charged_earlier {
        response
            .headers_mut()
            .insert(app.names.credits_charged.clone(), HeaderValue::from_static("0"));
    }
    response
}

/// Creates a chat completion, paid from credits.
#[utoipa::path(
    post, path = "/api/wrapped/credits/v1/chat/completions", tag = "Calls",
    params(header_params::OptionalKey, header_params::OnBehalfOf, header_params::CallLabels),
    request_body = openapi::ChatCompletionRequest,
    responses(
        (status = 200, description = "The provider's own JSON, or SSE with `stream: true`", content(
            (openapi::ChatCompletion = "application/json"), (String = "text/event-stream")),
            headers(
                ("X-Svc-Credits-Charged" = String, description = "Credits taken"),
                ("X-Svc-Credits-Balance" = String, description = "Settled balance in credits"),
                ("X-Svc-Cost-Usd" = String, description = "Dollars taken; secret keys only"),
                ("X-Svc-Call-Id" = String, description = "The call"))),
        Errors)
)]
async fn chat_completions(State(app): AppState, request: Request) -> Answered {
    let (parts, body) = request.into_parts();
    let actor = caller(&parts)?;
    let shows = sees_cost(&actor);
    let context = call_context(&app, &parts, actor)?;
    let raw = read_json_body(&parts.headers, body, body_limits(&app), false).await?;
    match app.service.desk.chat(context, raw).await {
        Ok(answer) => Ok(chat_response(&app.names, answer, shows)),
        Err(error) => Ok(failed(&app, error)),
    }
}

/// Lists the models that can be called, with their prices.
#[utoipa::path(
    get, path = "/api/wrapped/credits/v1/models", tag = "Calls",
    responses((status = 200, description = "An OpenAI model list", body = openapi::ModelList), Errors)
)]
async fn models(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    Ok(Json(app.service.reader.models(&actor)).into_response())
}

/// Runs a tool, paid from credits.
#[utoipa::path(
    post, path = "/api/wrapped/credits/{provider}/{endpoint}", tag = "Calls",
    params(
        ("provider" = String, Path, description = "Provider id", pattern = "^[a-z0-9][a-z0-9-]*$", example = "sim"),
        ("endpoint" = String, Path, description = "Endpoint name", pattern = "^[a-z0-9][a-z0-9-]*$", example = "echo"),
        header_params::OptionalKey, header_params::OnBehalfOf, header_params::CallLabels,
        header_params::ApprovalToken),
    request_body(
        content = BTreeMap<String, Value>,
        description = "The tool's arguments, an object that fits its schema"),
    responses((status = 200, description = "The tool's result", body = openapi::ToolResult), Errors)
)]
async fn execute(
    State(app): AppState,
    Segments((provider, endpoint)): Segments<(String, String)>,
    request: Request,
) -> Answered {
    let (parts, body) = request.into_parts();
    let actor = caller(&parts)?;
    let shows = sees_cost(&actor);
    let context = call_context(&app, &parts, actor)?;
    let raw = read_json_body(&parts.headers, body, body_limits(&app), true).await?;
    match app.service.desk.execute(context, provider, endpoint, raw).await {
        Ok(answer) => Ok(tool_response(&app.names, answer, shows)),
        Err(error) => Ok(failed(&app, error)),
    }
}

/// The caller of a change, the request's head, and its body, which may be absent.
pub(super) async fn changing(
    app: &App,
    request: Request,
    may_be_empty: bool,
) -> Result<(Actor, http::request::Parts, bytes::Bytes), ApiError> {
    let (parts, body) = request.into_parts();
    let actor = caller(&parts)?;
    let raw = read_json_body(&parts.headers, body, body_limits(app), may_be_empty).await?;
    Ok((actor, parts, raw))
}

pub(super) fn query<T: serde::de::DeserializeOwned>(parts: &http::request::Parts) -> Result<T, ApiError> {
    Query::<T>::try_from_uri(&parts.uri)
        .map(|Query(query)| query)
        .map_err(|error| ApiError(AppError::invalid("query", error.body_text())))
}

pub(super) fn no_store(body: &Value) -> Response {
    let mut response = Json(body).into_response();
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Shows the balance of the workspace's pool, or of the end user that the header names; to an agent connection the one it
/// spends from.
#[utoipa::path(
    get, path = "/api/credits/balance", tag = "Statements", params(header_params::OnBehalfOf),
    responses((status = 200, description = "The balance", body = openapi::Balance), Errors)
)]
async fn balance(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let payer = paying(&app, &parts.headers, &actor)?;
    let balance = app.service.reader.balance(&actor, &payer).await?;
    Ok(shown_balance(&balance))
}

pub(super) fn shown_balance(balance: &BalanceView) -> Response {
    no_store(&balance_members(balance))
}

pub(super) fn balance_members(balance: &BalanceView) -> Value {
    let mut body = balance.members();
    if let Some(members) = body.as_object_mut() {
        members.insert("success".to_owned(), json!(true));
    }
    body
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LedgerQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    external_user_id: Option<String>,
}

pub(super) fn page_size(limit: Option<u32>) -> Result<u32, ApiError> {
    match limit.unwrap_or(20) {
        limit @ 1..=100 => Ok(limit),
        _ => Err(ApiError(AppError::invalid("limit", "must be 1 to 100"))),
    }
}

/// Which page of a list.
#[derive(Deserialize)]
pub(super) struct PageQuery {
    limit: Option<u32>,
    cursor: Option<String>,
}

impl PageQuery {
    pub(super) fn size(&self) -> Result<u32, ApiError> {
        page_size(self.limit)
    }

    pub(super) fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }
}

/// A page as it is answered.
pub(super) fn paged(page: &Page) -> Response {
    no_store(&json!({ "success": true, "data": page.data, "next_cursor": page.next_cursor }))
}

/// One thing as it is answered.
pub(super) fn enveloped(name: &str, value: &Value) -> Response {
    no_store(&json!({ "success": true, name: value }))
}

pub(super) fn with_status(status: StatusCode, mut response: Response) -> Response {
    *response.status_mut() = status;
    response
}

pub(super) fn payer_filter(external_user_id: Option<String>) -> Result<Option<Payer>, ApiError> {
    external_user_id
        .map(|text| ExternalUserId::parse(&text).map(Payer::EndUser))
        .transpose()
        .map_err(|error| ApiError(AppError::invalid("externalUserId", error.to_string())))
}

/// Lists ledger entries, newest first.
#[utoipa::path(
    get, path = "/api/credits/ledger", tag = "Statements", params(openapi::LedgerParams),
    responses((status = 200, description = "A page of entries", body = openapi::EntryList), Errors)
)]
async fn ledger(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let query: LedgerQuery = query(&parts)?;
    let payer = payer_filter(query.external_user_id)?;
    let limit = page_size(query.limit)?;
    let page = app
        .service
        .reader
        .entries(&actor, payer, query.cursor.as_deref(), limit)
        .await?;
    Ok(no_store(
        &json!({ "success": true, "data": page.entries, "next_cursor": page.next_cursor }),
    ))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UsageQuery {
    group_by: Option<String>,
    from: Option<String>,
    to: Option<String>,
    external_user_id: Option<String>,
    attribution: Option<String>,
}

fn instant(path: &str, text: Option<&str>) -> Result<Option<Timestamp>, ApiError> {
    text.map(str::parse).transpose().map_err(|_invalid| {
        ApiError(AppError::invalid(
            path,
            "must be an ISO 8601 date-time such as 2026-11-01T00:00:00Z",
        ))
    })
}

/// Sums calls by day, model, endpoint, provider or end user.
#[utoipa::path(
    get, path = "/api/credits/usage", tag = "Statements", params(openapi::UsageParams),
    responses((status = 200, description = "Usage by group", body = openapi::UsageList), Errors)
)]
async fn usage(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let query: UsageQuery = query(&parts)?;
    let group = match query.group_by.as_deref() {
        None | Some("day") => UsageGroup::Day,
        Some("model") => UsageGroup::Model,
        Some("endpoint") => UsageGroup::Endpoint,
        Some("provider") => UsageGroup::Provider,
        Some("endUser") => UsageGroup::EndUser,
        Some(_) => {
            let message = "must be one of day, model, endpoint, provider, endUser";
            return Err(ApiError(AppError::invalid("groupBy", message)));
        }
    };
    let attribution = match query.attribution {
        None => None,
        Some(text) => match text.split_once(':') {
            Some((name, value)) if !name.is_empty() && !text.contains('\0') => {
                Some((name.to_owned(), value.to_owned()))
            }
            _ => return Err(ApiError(AppError::invalid("attribution", "must be name:value"))),
        },
    };
    let filter = UsageFilter {
        from: instant("from", query.from.as_deref())?,
        to: instant("to", query.to.as_deref())?,
        payer: payer_filter(query.external_user_id)?,
        attribution,
    };
    let data = app.service.reader.usage(&actor, group, &filter).await?;
    Ok(no_store(&json!({ "success": true, "data": data })))
}

fn call_id(text: &str) -> Result<CallId, ApiError> {
    text.parse()
        .map_err(|_invalid| ApiError::new(ErrorCode::NotFound, "there is no such call"))
}

/// Shows a call's record.
#[utoipa::path(
    get, path = "/api/credits/calls/{callId}", tag = "Statements",
    params(("callId" = uuid::Uuid, Path, description = "The call")),
    responses((status = 200, description = "The call", body = openapi::CallEnvelope), Errors)
)]
async fn call(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let call = app.service.reader.call(&actor, call_id(&id)?).await?;
    Ok(no_store(&json!({ "success": true, "call": call })))
}

#[derive(Deserialize)]
struct ResultQuery {
    offset: Option<usize>,
    limit: Option<usize>,
}

/// Reads a call's stored answer, in pages of bytes.
#[utoipa::path(
    get, path = "/api/credits/calls/{callId}/result", tag = "Statements",
    params(("callId" = uuid::Uuid, Path, description = "The call"), openapi::ResultParams),
    responses((status = 200, description = "A part of the answer", body = openapi::ResultPage), Errors)
)]
async fn call_result(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let query: ResultQuery = query(&parts)?;
    let (offset, limit) = (query.offset.unwrap_or(0), query.limit.unwrap_or(65_536));
    if limit == 0 || limit > turnpike_app::reads::MAX_RESULT_PAGE {
        return Err(ApiError(AppError::invalid("limit", "must be 1 to 1048576 bytes")));
    }
    Ok(no_store(&result_view(&app, &actor, &id, offset, limit).await?))
}

/// A part of a call's stored answer, `limit` bytes from `offset` on at most.
pub(super) async fn result_view(
    app: &App,
    actor: &Actor,
    id: &str,
    offset: usize,
    limit: usize,
) -> Result<Value, ApiError> {
    let reader = &app.service.reader;
    let (page, total, kind) = reader.result(actor, call_id(id)?, offset, limit).await?;
    let content_type = match kind {
        OutcomeKind::Transcript => "text/event-stream",
        OutcomeKind::Success | OutcomeKind::Failure => "application/json",
    };
    let end = offset.saturating_add(page.len());
    // Text where the cut allows it; base64 otherwise, so that no byte is lost.
    let (content, encoding) = match std::str::from_utf8(&page) {
        Ok(text) => (text.to_owned(), "utf-8"),
        Err(_cut) => {
            use base64::Engine as _;
            (base64::engine::general_purpose::STANDARD.encode(&page), "base64")
        }
    };
    Ok(json!({
        "success": true, "callId": id, "contentType": content_type, "content": content, "encoding": encoding,
        "offset": offset, "totalBytes": total, "nextOffset": (end < total).then_some(end),
    }))
}

/// Shows the workspace's settings.
#[utoipa::path(
    get, path = "/api/credits/tenants/me/settings", tag = "Workspace",
    responses((status = 200, description = "The settings", body = openapi::SettingsEnvelope), Errors)
)]
async fn get_settings(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let settings = app.service.settings.get(actor.tenant.id).await?;
    Ok(no_store(&json!({ "success": true, "settings": settings })))
}

/// Replaces the workspace's settings.
///
/// Members that are absent go back to their defaults, but for `pricing` and `catalog`, which stay as they are. Changing
/// these needs `catalog:write` as well.
#[utoipa::path(
    put, path = "/api/credits/tenants/me/settings", tag = "Workspace",
    request_body = openapi::Settings,
    responses((status = 200, description = "The settings", body = openapi::SettingsEnvelope), Errors)
)]
async fn put_settings(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, false).await?;
    let settings = app.service.settings.put(&actor, &raw).await?;
    app.service.authenticator.forget();
    Ok(no_store(&json!({ "success": true, "settings": settings })))
}

/// This document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "Service",
    responses((status = 200, description = "OpenAPI 3.1", body = Value))
)]
async fn openapi_json(State(app): AppState) -> Answered {
    let mut document = openapi::document();
    vendor_doc::add_offers(&mut document, &vendor_doc::currency(&app));
    let document =
        vendor_doc::named(&app, &document).map_err(|error| ApiError(AppError::internal(&error)))?;
    Ok(Json(document).into_response())
}

/// The service in words, for language models.
#[utoipa::path(
    get, path = "/llms.txt", tag = "Service",
    responses((status = 200, description = "Markdown", body = String, content_type = "text/plain"))
)]
async fn llms_txt(State(app): AppState) -> Response {
    openapi::llms_txt(&app).into_response()
}

/// Whether the process is alive.
#[utoipa::path(
    get, path = "/healthz", tag = "Service",
    responses((status = 200, description = "Alive", body = openapi::Status))
)]
async fn healthz() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// Whether the service takes calls.
#[utoipa::path(
    get, path = "/readyz", tag = "Service",
    responses(
        (status = 200, description = "Takes calls", body = openapi::Status),
        (status = 503, description = "Draining, or the store does not answer", body = openapi::Status))
)]
async fn readyz(State(app): AppState) -> Response {
    let refuse =
        |status: &str| (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": status }))).into_response();
    if app.draining.load(Ordering::Acquire) {
        return refuse("draining");
    }
    match app.service.store.ping().await {
        Ok(()) => Json(json!({ "status": "ok" })).into_response(),
        Err(error) => {
            tracing::warn!(%error, "not ready");
            refuse("store unavailable")
        }
    }
}
