//! The headers that routes take, for the OpenAPI document: each is described here and nowhere else.
//!
//! A route names one struct for each group of headers that it takes.

#![expect(
    dead_code,
    reason = "these types only describe documents; the routes read the headers"
)]

use utoipa::IntoParams;

/// Of a request that may be repeated.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct OptionalKey {
    /// One key per request body, the same on a retry; 1 to 255 visible ASCII characters.
    #[param(rename = "Idempotency-Key", required = false, pattern = "^[!-~]{1,255}$")]
    idempotency_key: Option<String>,
}

/// Of a request that is refused without a key.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct RequiredKey {
    /// One key per request body, the same on a retry; 1 to 255 visible ASCII characters.
    #[param(rename = "Idempotency-Key", pattern = "^[!-~]{1,255}$")]
    idempotency_key: String,
}

/// Of a request with an end user's token.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct Session {
    /// The session's value, when the token is bound to one.
    #[param(
        rename = "X-Svc-Session-Id",
        required = false,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{15,127}$"
    )]
    session_id: Option<String>,
}

/// Of a request about the balance of an end user or of the workspace.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct OnBehalfOf {
    /// The end user whose balance it is; absent = the workspace's pool.
    #[param(
        rename = "X-Svc-External-User-Id",
        required = false,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$"
    )]
    external_user_id: Option<String>,
}

/// Of a call.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct CallLabels {
    /// Names the agent loop, when the end user's policy counts loops.
    #[param(
        rename = "X-Svc-Loop-Id",
        required = false,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{15,127}$"
    )]
    loop_id: Option<String>,
    /// JSON object of at most 20 string members that tags the ledger entries; at most 2048 bytes.
    #[param(rename = "X-Svc-Attribution", required = false)]
    attribution: Option<String>,
}

/// Of a call that was quoted.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct ApprovalToken {
    /// The token of an estimate of exactly this call: it costs no more than that.
    #[param(
        rename = "X-Svc-Approval-Token",
        required = false,
        pattern = "^qt_[A-Za-z0-9_-]{64}$"
    )]
    approval_token: Option<String>,
}

/// Of an event of the payment processor.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct ProcessorSignature {
    /// `t=…,v1=…` over the raw body.
    #[param(rename = "Stripe-Signature")]
    signature: String,
}
