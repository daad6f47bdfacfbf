//! Routes of prices: the markup of each level, its history, and what a call will cost.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use turnpike_app::pricing::{ExplainQuery, Level};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::access::admitted;
use super::openapi::Errors;
use super::routes::{Answered, AppState, PageQuery, Segments, changing, enveloped, no_store, query};
use super::schemas_keys::PageParams;
use super::schemas_pricing as schemas;
use super::schemas_workspace::AuditPage;

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(price_levels))
        .routes(routes!(explain_price))
        .routes(routes!(price_history))
        .routes(routes!(set_global_markup, reset_global_markup))
        .routes(routes!(set_provider_markup, reset_provider_markup))
        .routes(routes!(set_endpoint_markup, reset_endpoint_markup))
}

async fn set(app: &App, level: Level<'_>, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(app, request, false).await?;
    let markup = app.service.pricing.set(&actor, level, &raw).await?;
    Ok(changed(app, &markup))
}

async fn reset(app: &App, level: Level<'_>, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let markup = app.service.pricing.reset(&actor, level).await?;
    Ok(changed(app, &markup))
}

fn changed(app: &App, markup: &Value) -> Response {
    app.service.authenticator.forget();
    enveloped("pricing", markup)
}

/// Shows what every level says about markup, keys included.
#[utoipa::path(
    get, path = "/api/credits/pricing", tag = "Pricing",
    responses((status = 200, description = "Every level", body = schemas::LevelsEnvelope), Errors)
)]
async fn price_levels(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let levels = app.service.pricing.levels(&actor).await?;
    Ok(enveloped("pricing", &levels))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    provider: Option<String>,
    endpoint: Option<String>,
    args: Option<String>,
    key_id: Option<String>,
}

/// Explains what a call of an end user costs, and which level supplied each part of the markup.
///
/// It is computed by what calls are charged with. For a model `args` is the body of a chat completion, and the price is
/// the most that this call can cost, which is what is held for it; without a usable body the amounts are null and
/// `humanSummary` says the rates. A price that the provider quotes live has null amounts, too.
#[utoipa::path(
    get, path = "/api/credits/pricing/explain", tag = "Pricing", params(schemas::ExplainParams),
    responses((status = 200, description = "The explanation", body = schemas::ExplainEnvelope), Errors)
)]
async fn explain_price(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let asked: Explained = query(&parts)?;
    let query = ExplainQuery {
        provider: asked.provider,
        endpoint: asked.endpoint,
        args: asked.args,
        key_id: asked.key_id,
    };
    let explain = app.service.pricing.explain(&actor, &query).await?;
    Ok(no_store(&json!({ "success": true, "explain": explain })))
}

/// Lists changes of prices, keys' prices and catalogue, newest first: the rows of the audit log whose action begins with
/// `pricing.`, `catalog.` or `key.pricing`.
#[utoipa::path(
    get, path = "/api/credits/pricing/history", tag = "Pricing", params(PageParams),
    responses((status = 200, description = "A page of changes", body = AuditPage), Errors)
)]
async fn price_history(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let asked: PageQuery = query(&parts)?;
    let desk = &app.service.pricing;
    let page = desk.history(&actor, asked.cursor(), asked.size()?).await?;
    Ok(no_store(
        &json!({ "success": true, "data": page.rows, "next_cursor": page.next_cursor }),
    ))
}

/// Replaces the markup on every call that no other level speaks of; what is left out is none.
#[utoipa::path(
    put, path = "/api/credits/pricing/global", tag = "Pricing", request_body = schemas::MarkupBody,
    responses((status = 200, description = "The level", body = schemas::LevelEnvelope), Errors)
)]
async fn set_global_markup(State(app): AppState, request: Request) -> Answered {
    set(&app, Level::Global, request).await
}

/// Takes the general markup away.
#[utoipa::path(
    delete, path = "/api/credits/pricing/global", tag = "Pricing",
    responses((status = 200, description = "The level", body = schemas::LevelEnvelope), Errors)
)]
async fn reset_global_markup(State(app): AppState, request: Request) -> Answered {
    reset(&app, Level::Global, request).await
}

/// Replaces a provider's markup; what is left out, the general level decides.
#[utoipa::path(
    put, path = "/api/credits/pricing/providers/{provider}", tag = "Pricing", params(schemas::ProviderPath),
    request_body = schemas::MarkupBody,
    responses((status = 200, description = "The level", body = schemas::LevelEnvelope), Errors)
)]
async fn set_provider_markup(
    State(app): AppState,
    Segments(provider): Segments<String>,
    request: Request,
) -> Answered {
    set(&app, Level::Provider(&provider), request).await
}

/// Takes a provider's markup away.
#[utoipa::path(
    delete, path = "/api/credits/pricing/providers/{provider}", tag = "Pricing", params(schemas::ProviderPath),
    responses((status = 200, description = "The level", body = schemas::LevelEnvelope), Errors)
)]
async fn reset_provider_markup(
    State(app): AppState,
    Segments(provider): Segments<String>,
    request: Request,
) -> Answered {
    reset(&app, Level::Provider(&provider), request).await
}

/// Replaces the markup of a tool or model; what is left out, its provider's level decides.
#[utoipa::path(
    put, path = "/api/credits/pricing/endpoints/{provider}/{endpoint}", tag = "Pricing",
    params(schemas::EndpointPath), request_body = schemas::MarkupBody,
    responses((status = 200, description = "The level", body = schemas::LevelEnvelope), Errors)
)]
async fn set_endpoint_markup(
    State(app): AppState,
    Segments((provider, endpoint)): Segments<(String, String)>,
    request: Request,
) -> Answered {
    set(&app, Level::Endpoint(&provider, &endpoint), request).await
}

/// Takes the markup of a tool or model away.
#[utoipa::path(
    delete, path = "/api/credits/pricing/endpoints/{provider}/{endpoint}", tag = "Pricing",
    params(schemas::EndpointPath),
    responses((status = 200, description = "The level", body = schemas::LevelEnvelope), Errors)
)]
async fn reset_endpoint_markup(
    State(app): AppState,
    Segments((provider, endpoint)): Segments<(String, String)>,
    request: Request,
) -> Answered {
    reset(&app, Level::Endpoint(&provider, &endpoint), request).await
}
