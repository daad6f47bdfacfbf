//! Routes of estimates: what a call of a tool would cost, with a quote that binds the price.

use std::sync::Arc;

use axum::extract::{Request, State};
use turnpike_app::tools::ToolCaller;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::access::admitted;
use super::caller::paying;
use super::openapi::Errors;
use super::problem::ApiError;
use super::routes::{Answered, AppState, Segments, changing, no_store};
use super::schemas_quotes as schemas;
use super::{App, header_params};

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(estimate))
        .routes(routes!(cancel))
}

/// Who asks about tools, and whose balance the headers name.
pub(super) fn tool_caller(
    app: &App,
    parts: &http::request::Parts,
    actor: turnpike_app::Actor,
) -> Result<ToolCaller, ApiError> {
    let payer = paying(app, &parts.headers, &actor)?;
    Ok(ToolCaller { actor, payer })
}

/// Says what a call of a tool would cost. Nothing is charged.
///
/// The token makes the call at no more than this price: once, with exactly these arguments, in the header
/// `X-Svc-Approval-Token`. Without a price the `kind` is `unavailable`, and there is no token.
#[utoipa::path(
    post, path = "/api/credits/tools/estimate", tag = "Tools", params(header_params::OnBehalfOf),
    request_body = schemas::EstimateRequest,
    responses((status = 200, description = "The estimate", body = schemas::EstimateEnvelope), Errors)
)]
async fn estimate(State(app): AppState, request: Request) -> Answered {
    let (actor, parts, raw) = changing(&app, request, false).await?;
    let caller = tool_caller(&app, &parts, actor)?;
    Ok(no_store(&app.service.quotes.estimate(&caller, &raw).await?))
}

/// Withdraws a quote. One that is over already stays as it is; one that a call used is refused.
#[utoipa::path(
    delete, path = "/api/credits/tools/estimate/{quoteId}", tag = "Tools",
    params(("quoteId" = uuid::Uuid, Path, description = "The estimate's id"), header_params::OnBehalfOf),
    responses((status = 200, description = "It cannot be used any more", body = schemas::CanceledEstimate), Errors)
)]
async fn cancel(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let caller = tool_caller(&app, &parts, actor)?;
    Ok(no_store(&app.service.quotes.cancel(&caller, &id).await?))
}
