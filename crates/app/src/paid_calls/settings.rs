//! Where and how calls are paid for, and how long everybody may take.

use std::sync::Arc;

use turnpike_core::access::KeyPepper;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::paid_call::{Operation, PayerCap};
use turnpike_core::x402::Address;

use super::prepare::Assortment;

/// What a payment has to be good for beside everybody's own time: connections, and what a facilitator asks for (fault
/// matrix 192).
const MARGIN_SECS: i64 = 16;
/// The least beside the provider's time, however fast the facilitator is.
const LEAST_MARGIN_SECS: i64 = 60;
/// Longest the chain may take to say what became of a payment.
const CHAIN_SECS: i64 = 60;
/// What a caller may take to sign and send, on top.
const SIGNING_SECS: i64 = 60;

/// Where and how calls are paid for.
#[derive(Clone, Debug)]
pub struct PaidCallSettings {
    /// Where callers reach the service, without a slash at its end.
    pub public_url: Arc<str>,
    /// Its host without a port.
    pub realm: Arc<str>,
    /// First segment of the operations' paths.
    pub vendor: Arc<str>,
    /// First part of the names that are ours.
    pub brand: Arc<str>,
    /// Whether no money moves.
    pub simulated: bool,
    /// CAIP-2, of an EVM chain.
    pub network: Arc<str>,
    /// The same as a number.
    pub chain_id: u64,
    /// The token, as it is shown: a US dollar in millionths.
    pub asset: Arc<str>,
    /// The same, parsed.
    pub asset_address: Address,
    /// The name in the token's EIP-712 domain.
    pub asset_name: Arc<str>,
    /// The version in the token's EIP-712 domain.
    pub asset_version: Arc<str>,
    /// Who is paid, as it is shown.
    pub pay_to: Arc<str>,
    /// The same, parsed.
    pub pay_to_address: Address,
    /// Seals the terms.
    pub seal: KeyPepper,
    /// What one wallet may have open at once.
    pub cap: PayerCap,
    /// How long a verification and a settlement may take together, in seconds.
    pub facilitator_secs: i64,
    /// What is sold.
    pub sold: Assortment,
}

impl PaidCallSettings {
    /// Whose books have these calls: one house tenant for each network and asset, and others where no money moves.
    pub fn house(&self) -> TenantId {
        if self.simulated {
            return TenantId::house(&format!("simulated {}", self.network), self.asset_address);
        }
        TenantId::house(&self.network, self.asset_address)
    }

    /// What operators see of it.
    pub(super) fn house_name(&self) -> String {
        let simulated = if self.simulated { ", simulated" } else { "" };
        format!(
            "Public calls on {} in {}{simulated}",
            self.network, self.asset_name
        )
    }

    /// The address of an operation.
    pub fn url(&self, operation: Operation) -> String {
        format!("{}/{}/{operation}", self.public_url, self.vendor)
    }

    /// How long a payment's authorisation has to be good, in seconds from when it comes.
    pub(super) fn needed_secs(&self, longest_ms: i64) -> i64 {
        let longest = longest_ms.saturating_add(999).saturating_div(1000);
        let facilitator = self.facilitator_secs.saturating_add(MARGIN_SECS);
        longest.saturating_add(facilitator.max(LEAST_MARGIN_SECS))
    }

    /// How long who settles may take for it: the chain before, the facilitator, the chain afterwards.
    pub(super) fn settlement_ms(&self) -> i64 {
        let chain = CHAIN_SECS.saturating_mul(2);
        let all = self
            .facilitator_secs
            .saturating_add(chain)
            .saturating_add(MARGIN_SECS);
        all.saturating_mul(1000)
    }

    /// For how long it is asked to be good.
    pub(super) fn asked_secs(&self, longest_ms: i64) -> i64 {
        self.needed_secs(longest_ms).saturating_add(SIGNING_SECS)
    }

    pub(super) fn name(&self, what: &str) -> String {
        format!("{}{what}", self.brand)
    }
}
