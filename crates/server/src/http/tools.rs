//! Routes of finding tools: search by a task or a group, and the description of one.

use std::sync::Arc;

use axum::extract::{Request, State};
use http::request::Parts;
use turnpike_app::Actor;
use turnpike_app::tools::ToolCaller;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::caller::paying;
use super::header_params::OnBehalfOf;
use super::openapi::Errors;
use super::problem::ApiError;
use super::routes::{Answered, AppState, changing, no_store};
use super::schemas_tools as schemas;

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(search_tools))
        .routes(routes!(describe_tool))
}

/// Who asks about tools: prices and limits are those of whoever would pay for a call.
fn tool_caller(app: &App, parts: &Parts, actor: Actor) -> Result<ToolCaller, ApiError> {
    Ok(ToolCaller {
        payer: paying(app, &parts.headers, &actor)?,
        actor,
    })
}

/// Finds tools for a task, in a category, or in a pack; best first.
///
/// Category and pack narrow the search and never widen it: an unknown one is refused with the names that come nearest in
/// `suggestions`. `enabled` is whether this caller could execute the tool: the workspace has it enabled, the key or token
/// names it, the end user's policy allows it. Prices are those of the balance that would pay, null when they differ from
/// call to call.
#[utoipa::path(
    post, path = "/api/credits/tools/search", tag = "Tools", params(OnBehalfOf),
    request_body = schemas::ToolSearch,
    responses((status = 200, description = "A page of tools", body = schemas::FoundTools), Errors)
)]
async fn search_tools(State(app): AppState, request: Request) -> Answered {
    let (actor, parts, raw) = changing(&app, request, false).await?;
    let caller = tool_caller(&app, &parts, actor)?;
    Ok(no_store(&app.service.tools.search(&caller, &raw).await?))
}

/// Describes a tool: its arguments, what it answers, what it costs, and whether the caller may execute it.
///
/// `pricing` is what `/api/credits/pricing/explain` says of a call without arguments. End users are shown what they pay,
/// and not what it is made of. An unknown slug is a 404 with the nearest ones in `suggestions`.
#[utoipa::path(
    post, path = "/api/credits/tools/describe", tag = "Tools", params(OnBehalfOf),
    request_body = schemas::ToolName,
    responses((status = 200, description = "The tool", body = schemas::DescribedToolEnvelope), Errors)
)]
async fn describe_tool(State(app): AppState, request: Request) -> Answered {
    let (actor, parts, raw) = changing(&app, request, false).await?;
    let caller = tool_caller(&app, &parts, actor)?;
    Ok(no_store(&app.service.tools.describe(&caller, &raw).await?))
}
