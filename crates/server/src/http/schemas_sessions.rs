//! Shapes of the routes of dashboard sessions, for the OpenAPI document.

#![expect(
    dead_code,
    reason = "these types only describe documents; the routes write the JSON"
)]

use utoipa::ToSchema;

/// How a second factor is shown.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct StepUpRequest {
    /// A one-time code, where the built-in identity takes one; absent = the session shows the second factor.
    #[schema(min_length = 1, max_length = 64)]
    code: Option<String>,
}

/// A step-up token.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct StepUpToken {
    success: bool,
    step_up_token: String,
    /// `StepUp`.
    token_type: String,
    /// At most ten minutes after the second factor was shown.
    #[schema(format = DateTime)]
    expires_at: String,
}

/// Nothing.
#[derive(ToSchema)]
pub(super) struct SignOutRequest {}

/// A session that was ended.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct SignedOut {
    success: bool,
    /// How many step-up tokens worked until now.
    #[schema(minimum = 0)]
    revoked_step_up_tokens: u64,
}
