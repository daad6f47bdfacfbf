//! Header names that carry the brand.

use http::HeaderName;
use http::header::InvalidHeaderName;

/// The service's own headers, `x-{brand}-…`.
#[derive(Clone, Debug)]
pub(crate) struct HeaderNames {
    pub(crate) external_user_id: HeaderName,
    pub(crate) loop_id: HeaderName,
    pub(crate) attribution: HeaderName,
    pub(crate) tenant_id: HeaderName,
    pub(crate) session_id: HeaderName,
    pub(crate) step_up: HeaderName,
    pub(crate) approval_token: HeaderName,
    pub(crate) credits_charged: HeaderName,
    pub(crate) credits_balance: HeaderName,
    pub(crate) cost_usd: HeaderName,
    pub(crate) call_id: HeaderName,
    pub(crate) simulated: HeaderName,
    pub(crate) request_id: HeaderName,
    pub(crate) receipt_id: HeaderName,
}

impl HeaderNames {
    /// The names for `brand`.
    pub(crate) fn new(brand: &str) -> Result<Self, InvalidHeaderName> {
        let name = |suffix: &str| HeaderName::try_from(format!("x-{brand}-{suffix}"));
        Ok(Self {
            external_user_id: name("external-user-id")?,
            loop_id: name("loop-id")?,
            attribution: name("attribution")?,
            tenant_id: name("tenant-id")?,
            session_id: name("session-id")?,
            step_up: name("step-up-token")?,
            approval_token: name("approval-token")?,
            credits_charged: name("credits-charged")?,
            credits_balance: name("credits-balance")?,
            cost_usd: name("cost-usd")?,
            call_id: name("call-id")?,
            simulated: name("simulated")?,
            request_id: name("request-id")?,
            receipt_id: name("receipt-id")?,
        })
    }
}
