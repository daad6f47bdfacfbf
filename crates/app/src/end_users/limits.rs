//! An end user's policy on the wire (decisions, section 9): all members optional, null = unlimited.

use std::sync::Arc;

use serde_json::{Value, json};
use turnpike_core::ids::ExternalUserId;
use turnpike_core::ledger::command::NewPolicy;
use turnpike_core::ledger::policy::Policy;
use turnpike_core::ledger::{Action, Outcome};
use turnpike_core::money::CreditsPerDollar;

use super::{EndUserDesk, Note, unexpected};
use crate::auth::Actor;
use crate::error::AppError;
use crate::fields::Fields;

const MEMBERS: [&str; 7] = [
    "maxUsdPerDay",
    "maxUsdPerMonth",
    "maxUsdPerCall",
    "maxCallsPerLoop",
    "maxCreditsPerLoop",
    "allowedTools",
    "requireApprovalAboveUsd",
];

/// The policy in a request's body. Credits are kept as dollars, at the tenant's rate.
fn parse(raw: &[u8], rate: CreditsPerDollar) -> Result<Policy, AppError> {
    let mut fields = Fields::parse(raw, &MEMBERS)?.without_nulls();
    Ok(Policy {
        max_usd_per_day: fields.usd("maxUsdPerDay")?,
        max_usd_per_month: fields.usd("maxUsdPerMonth")?,
        max_usd_per_call: fields.usd("maxUsdPerCall")?,
        max_calls_per_loop: fields.count("maxCallsPerLoop")?,
        max_usd_per_loop: fields.amount("maxCreditsPerLoop", |text| rate.parse_credits(text))?,
        allowed_tools: fields.slugs("allowedTools")?,
        require_approval_above_usd: fields.usd("requireApprovalAboveUsd")?,
    })
}

/// The policy as it is shown: every member, null where there is no limit.
pub(super) fn view(policy: &Policy, rate: CreditsPerDollar) -> Value {
    json!({
        "maxUsdPerDay": policy.max_usd_per_day,
        "maxUsdPerMonth": policy.max_usd_per_month,
        "maxUsdPerCall": policy.max_usd_per_call,
        "maxCallsPerLoop": policy.max_calls_per_loop,
        "maxCreditsPerLoop": policy.max_usd_per_loop.map(|limit| rate.credits(limit)),
        "allowedTools": policy.allowed_tools,
        "requireApprovalAboveUsd": policy.require_approval_above_usd,
    })
}

impl EndUserDesk {
    /// An end user's limits.
    ///
    /// # Errors
    /// `END_USER_NOT_FOUND`.
    pub async fn policy(&self, actor: &Actor, id: &ExternalUserId) -> Result<Value, AppError> {
        let user = self.find(actor, id).await?;
        Ok(view(&user.policy, actor.tenant.credits_per_dollar))
    }

    /// Replaces an end user's limits as a whole; an unknown end user is created.
    ///
    /// # Errors
    /// `UNKNOWN_FIELD`, `VALIDATION_ERROR`, `TENANT_SUSPENDED`, `END_USER_RETIRED`.
    pub async fn set_policy(
        &self,
        actor: &Actor,
        id: &ExternalUserId,
        raw: &[u8],
    ) -> Result<Value, AppError> {
        let rate = actor.tenant.credits_per_dollar;
        let policy = Arc::new(parse(raw, rate)?);
        let change = NewPolicy {
            end_user: id.clone(),
            policy: policy.clone(),
        };
        let note = Note::new("end_user.policy", id.as_str()).after(&json!(*policy));
        let done = self
            .submit(actor, Action::SetPolicy(Box::new(change)), note)
            .await?;
        let Outcome::PolicySet = done else {
            return Err(unexpected(&done));
        };
        Ok(view(&policy, rate))
    }
}

#[cfg(test)]
mod tests {
    use turnpike_core::money::Micros;

    use super::*;

    #[test]
    fn a_policy_is_shown_as_it_was_sent() {
        let rate = CreditsPerDollar::default();
        let body = json!({
            "maxUsdPerDay": "5", "maxUsdPerMonth": "100.5", "maxUsdPerCall": "0.000001", "maxCallsPerLoop": 7,
            "maxCreditsPerLoop": "1500.5", "allowedTools": ["up/*", "tools/fetch"], "requireApprovalAboveUsd": "1",
        });
        let policy = parse(body.to_string().as_bytes(), rate).unwrap();
        assert_eq!(policy.max_usd_per_loop, Some(Micros::new(1_500_500)));
        assert_eq!(view(&policy, rate), body);
        let none = parse(br#"{"maxUsdPerDay":null}"#, rate).unwrap();
        assert_eq!(none, Policy::default());
        let shown = view(&none, rate);
        assert!(MEMBERS.iter().all(|name| shown.get(*name) == Some(&Value::Null)));
        assert!(parse(br#"{"maxCreditsPerLoop":"0.0001"}"#, rate).is_err());
        assert!(parse(br#"{"maxUsdPerLoop":"1"}"#, rate).is_err());
    }
}
