//! Routes of the catalogue: what can be called, and switching it on and off.
//!
//! A model's id may have `/` and `:` in it; in a path it is one percent-encoded segment.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::Value;
use turnpike_app::catalogue::Switched;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::access::admitted;
use super::openapi::Errors;
use super::routes::{Answered, AppState, PageQuery, Segments, changing, enveloped, paged, query};
use super::schemas_keys::PageParams;
use super::schemas_pricing as schemas;

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list_catalogue))
        .routes(routes!(switch_provider, reset_provider))
        .routes(routes!(switch_endpoint, reset_endpoint))
}

fn switched(app: &App, entry: &Value) -> Response {
    app.service.authenticator.forget();
    enveloped("entry", entry)
}

/// Lists every tool and model by slug, and whether the workspace has it enabled.
#[utoipa::path(
    get, path = "/api/credits/catalog", tag = "Catalogue", params(PageParams),
    responses((status = 200, description = "A page of entries", body = schemas::EntryList), Errors)
)]
async fn list_catalogue(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let asked: PageQuery = query(&parts)?;
    let desk = &app.service.catalogue;
    Ok(paged(&desk.list(&actor, asked.cursor(), asked.size()?).await?))
}

/// Switches on or off everything of a provider that has no rule of its own.
#[utoipa::path(
    put, path = "/api/credits/catalog/{provider}", tag = "Catalogue", params(schemas::ProviderPath),
    request_body = schemas::Switch,
    responses((status = 200, description = "The rule", body = schemas::SwitchedProvider), Errors)
)]
async fn switch_provider(
    State(app): AppState,
    Segments(provider): Segments<String>,
    request: Request,
) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, false).await?;
    let what = Switched::Provider(&provider);
    let entry = app.service.catalogue.switch(&actor, what, &raw).await?;
    Ok(switched(&app, &entry))
}

/// Takes a provider's rule away: what has no rule of its own is enabled.
#[utoipa::path(
    delete, path = "/api/credits/catalog/{provider}", tag = "Catalogue", params(schemas::ProviderPath),
    responses((status = 200, description = "What is in force", body = schemas::SwitchedProvider), Errors)
)]
async fn reset_provider(
    State(app): AppState,
    Segments(provider): Segments<String>,
    request: Request,
) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let what = Switched::Provider(&provider);
    let entry = app.service.catalogue.reset(&actor, what).await?;
    Ok(switched(&app, &entry))
}

/// Switches one tool or model on or off, whatever its provider's rule says.
#[utoipa::path(
    put, path = "/api/credits/catalog/{provider}/{endpoint}", tag = "Catalogue", params(schemas::EndpointPath),
    request_body = schemas::Switch,
    responses((status = 200, description = "The entry", body = schemas::SwitchedEntry), Errors)
)]
async fn switch_endpoint(
    State(app): AppState,
    Segments((provider, endpoint)): Segments<(String, String)>,
    request: Request,
) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, false).await?;
    let what = Switched::Endpoint(&provider, &endpoint);
    let entry = app.service.catalogue.switch(&actor, what, &raw).await?;
    Ok(switched(&app, &entry))
}

/// Takes the rule of one tool or model away: its provider's decides.
#[utoipa::path(
    delete, path = "/api/credits/catalog/{provider}/{endpoint}", tag = "Catalogue", params(schemas::EndpointPath),
    responses((status = 200, description = "The entry", body = schemas::SwitchedEntry), Errors)
)]
async fn reset_endpoint(
    State(app): AppState,
    Segments((provider, endpoint)): Segments<(String, String)>,
    request: Request,
) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let what = Switched::Endpoint(&provider, &endpoint);
    let entry = app.service.catalogue.reset(&actor, what).await?;
    Ok(switched(&app, &entry))
}
