//! Which rows a command touches: what a batch has to load before its commands are applied.

use std::sync::Arc;

use super::account::{AccountKey, AccountKind, Payer};
use super::command::{Action, Command, TopupRef, event_claim};
use super::drift::DriftKey;
use super::hold::{CallRef, ClaimKey, LoopKey};
use super::paid_call::{PaidCall, PaidCallRef};
use crate::ids::{
    ApprovalId, CallId, ExternalUserId, PayoutId, QuoteId, RequestId, TenantId, TokenId, TopupId,
};

/// The rows a batch has to load before its commands are applied.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Accounts.
    pub accounts: Vec<AccountKey>,
    /// End users.
    pub end_users: Vec<(TenantId, ExternalUserId)>,
    /// Holds.
    pub holds: Vec<(TenantId, CallId)>,
    /// Idempotency claims.
    pub claims: Vec<ClaimKey>,
    /// Loop counters.
    pub loops: Vec<LoopKey>,
    /// Tenants.
    pub tenants: Vec<TenantId>,
    /// Top-ups.
    pub topups: Vec<(TenantId, TopupId)>,
    /// Choices about automatic top-ups.
    pub auto_topups: Vec<TenantId>,
    /// Tokens by id.
    pub tokens: Vec<(TenantId, TokenId)>,
    /// End users all of whose live tokens are needed.
    pub token_owners: Vec<(TenantId, ExternalUserId)>,
    /// Windows of usage drift.
    pub drift_windows: Vec<DriftKey>,
    /// Payouts.
    pub payouts: Vec<(TenantId, PayoutId)>,
    /// Where workspaces are paid out to.
    pub payout_settings: Vec<TenantId>,
    /// Paid calls.
    pub paid_calls: Vec<(TenantId, RequestId)>,
    /// Quotes by id.
    pub quotes: Vec<(TenantId, QuoteId)>,
    /// End users all of whose open quotes are needed.
    pub quote_owners: Vec<(TenantId, ExternalUserId)>,
    /// Approvals by id.
    pub approvals: Vec<(TenantId, ApprovalId)>,
    /// End users all of whose open approvals are needed.
    pub approval_owners: Vec<(TenantId, ExternalUserId)>,
}

impl Command {
    /// Adds the rows this command touches to `needs`; the same row may be added twice.
    pub fn needs(&self, needs: &mut Needs) {
        needs.tenants.push(self.tenant);
        let of = |kind| AccountKey::of(self.tenant, kind);
        match &self.action {
            Action::Grant(grant) => {
                needs.payer(self.tenant, &grant.to);
                needs.accounts.push(of(AccountKind::Funding));
                needs.accounts.push(of(AccountKind::Bonus));
                needs
                    .claims
                    .extend(grant.claim.as_ref().map(|claim| claim.key.clone()));
            }
            Action::Move(moved) => {
                needs.payer(self.tenant, &Payer::EndUser(moved.end_user.clone()));
                needs.accounts.push(of(AccountKind::Pool));
                needs
                    .claims
                    .extend(moved.claim.as_ref().map(|claim| claim.key.clone()));
            }
            Action::Hold(hold) => {
                needs.payer(self.tenant, &hold.payer);
                needs
                    .claims
                    .extend(hold.claim.as_ref().map(|claim| claim.key.clone()));
                needs.loops.extend(hold.loop_key(self.tenant));
                needs.tokens.extend(hold.token.map(|token| (self.tenant, token)));
                needs.authority(self.tenant, &hold.reference());
            }
            Action::MarkDispatched(call) => needs.holds.push((self.tenant, call.call)),
            Action::Capture(capture) => needs.call(self.tenant, &capture.call, false),
            Action::FinishStream(finish) => needs.call(self.tenant, &finish.call, false),
            Action::Release(release) => needs.call(self.tenant, &release.call, true),
            Action::Expire(call) => needs.call(self.tenant, call, true),
            Action::OpenTopup(new) | Action::BeginAutoTopup(new) => {
                needs.topup(self.tenant, &new.topup());
                needs
                    .claims
                    .extend(new.claim.as_ref().map(|claim| claim.key.clone()));
            }
            Action::AttachCheckout(attach) => needs.topup(self.tenant, &attach.topup),
            Action::TopupReport(report) => {
                needs.report(self.tenant, &report.topup, report.event.as_ref());
            }
            Action::OpenRefund(new) => {
                needs.topup(self.tenant, &new.topup);
                needs
                    .claims
                    .extend(new.claim.as_ref().map(|claim| claim.key.clone()));
            }
            Action::RefundReport(report) => {
                needs.report(self.tenant, &report.topup, report.event.as_ref());
            }
            Action::DisputeReport(report) => {
                needs.report(self.tenant, &report.topup, report.event.as_ref());
            }
            Action::SetAutoTopup(_) => needs.auto_topups.push(self.tenant),
            Action::MintToken(new) => {
                needs.payer(self.tenant, &new.token.owner);
                needs.tokens.push((self.tenant, new.id));
            }
            Action::RevokeTokens(revoke) => {
                needs.payer(self.tenant, &revoke.owner);
                match (revoke.only, revoke.owner.external_user_id()) {
                    (Some(only), _) => needs.tokens.push((self.tenant, only)),
                    (None, Some(owner)) => needs.token_owners.push((self.tenant, owner.clone())),
                    (None, None) => {}
                }
            }
            Action::SetPolicy(new) => {
                needs.payer(self.tenant, &Payer::EndUser(new.end_user.clone()));
            }
            Action::SetFrozen(frozen) => needs.payer(self.tenant, &frozen.payer),
            Action::Retire(retire) => {
                needs.payer(self.tenant, &Payer::EndUser(retire.end_user.clone()));
                let owner = (self.tenant, retire.end_user.clone());
                needs.token_owners.push(owner.clone());
                needs.quote_owners.push(owner.clone());
                needs.approval_owners.push(owner);
            }
            Action::DriftReport(report) => needs.drift_windows.push(DriftKey {
                tenant: self.tenant,
                provider: report.provider.clone(),
                day: report.day,
            }),
            Action::OpenPayout(new) => {
                needs.payout(self.tenant, new.id);
                needs.accounts.push(of(AccountKind::Receivable));
                needs.payout_settings.push(self.tenant);
                needs
                    .claims
                    .extend(new.claim.as_ref().map(|claim| claim.key.clone()));
            }
            Action::ReportPayout(report) => needs.payout(self.tenant, report.payout),
            Action::CancelPayout(payout) => needs.payout(self.tenant, *payout),
            Action::ChangePayouts(_) => needs.payout_settings.push(self.tenant),
            Action::ClaimPaidCall(new) => {
                let payer = PaidCall::account(self.tenant, new.payment.payer);
                needs.accounts.push(payer);
                needs.paid_calls.push((self.tenant, new.id));
                needs.claims.push(PaidCall::claim(self.tenant, &new.payment.key));
            }
            Action::FinishPaidCall(finish) => needs.paid_call(self.tenant, &finish.call),
            Action::FailPaidCall(fail) => needs.paid_call(self.tenant, &fail.call),
            Action::AbandonPaidCall(call) => {
                needs.paid_call(self.tenant, call);
                needs.claims.push(PaidCall::claim(self.tenant, &call.key));
            }
            Action::LeaseSettlement(lease) => needs.paid_calls.push((self.tenant, lease.call.id)),
            Action::ReportSettlement(report) => needs.paid_call(self.tenant, &report.call),
            Action::OpenQuote(new) => {
                needs
                    .end_users
                    .extend(new.owner.clone().map(|owner| (self.tenant, owner)));
                needs.quotes.push((self.tenant, new.id));
            }
            Action::CancelQuote(cancel) => needs.quotes.push((self.tenant, cancel.id)),
            Action::RequestApproval(new) => {
                needs.end_users.push((self.tenant, new.owner.clone()));
                needs.approvals.push((self.tenant, new.id));
                needs.approval_owners.push((self.tenant, new.owner.clone()));
            }
            Action::DecideApproval(decision) => {
                needs.end_users.push((self.tenant, decision.owner.clone()));
                needs.approvals.push((self.tenant, decision.id));
            }
        }
    }
}

impl Needs {
    fn payer(&mut self, tenant: TenantId, payer: &Payer) {
        self.accounts.push(payer.account(tenant));
        if let Payer::EndUser(id) = payer {
            self.end_users.push((tenant, id.clone()));
        }
    }

    fn call(&mut self, tenant: TenantId, call: &CallRef, frees_claim: bool) {
        self.payer(tenant, &call.payer);
        for kind in [
            AccountKind::ProviderCost,
            AccountKind::Margin,
            AccountKind::OperatorLoss,
        ] {
            self.accounts.push(AccountKey::of(tenant, kind));
        }
        self.holds.push((tenant, call.call));
        self.loops.extend(call.loop_key(tenant));
        self.tokens.extend(call.token.map(|token| (tenant, token)));
        if frees_claim {
            self.claims.extend(call.claim.clone());
            self.authority(tenant, call);
        }
    }

    fn authority(&mut self, tenant: TenantId, call: &CallRef) {
        self.quotes.extend(call.quote.map(|quote| (tenant, quote)));
        self.approvals
            .extend(call.approval.map(|approval| (tenant, approval)));
    }

    fn topup(&mut self, tenant: TenantId, topup: &TopupRef) {
        self.payer(tenant, &topup.payer);
        for kind in [
            AccountKind::Pool,
            AccountKind::Funding,
            AccountKind::Bonus,
            AccountKind::Fees,
            AccountKind::Receivable,
            AccountKind::Margin,
        ] {
            self.accounts.push(AccountKey::of(tenant, kind));
        }
        self.topups.push((tenant, topup.topup));
        self.auto_topups.push(tenant);
    }

    fn payout(&mut self, tenant: TenantId, payout: PayoutId) {
        for kind in [AccountKind::Margin, AccountKind::Payouts] {
            self.accounts.push(AccountKey::of(tenant, kind));
        }
        self.payouts.push((tenant, payout));
    }

    fn paid_call(&mut self, tenant: TenantId, call: &PaidCallRef) {
        self.accounts.push(PaidCall::account(tenant, call.payer));
        for kind in [
            AccountKind::ProviderCost,
            AccountKind::Margin,
            AccountKind::OperatorLoss,
        ] {
            self.accounts.push(AccountKey::of(tenant, kind));
        }
        self.paid_calls.push((tenant, call.id));
    }

    fn report(&mut self, tenant: TenantId, topup: &TopupRef, event: Option<&Arc<str>>) {
        self.topup(tenant, topup);
        self.claims.extend(event.map(|event| event_claim(tenant, event)));
    }
}
