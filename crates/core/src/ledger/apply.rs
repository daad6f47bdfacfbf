//! The state machine: one pure function decides every change of money.
//!
//! The same function runs behind SQLite, PostgreSQL, the in-memory store and the simulation. It reads and
//! changes only the loaded [`Books`], and a command that is refused has changed nothing.

use serde_json::json;
use uuid::Uuid;

use super::account::{Account, AccountKey, AccountKind, AccountStatus, Balance, Payer, TenantStatus};
use super::books::{Books, TenantHead};
use super::command::{
    Action, AuditEntry, AuditNote, Command, Grant, GrantSource, MOVE_KEPT_MS, Move, MoveReceipt, NewClaim,
    Outcome, OutcomeKind, StoredOutcome,
};
use super::event::{Event, EventType};
use super::hold::Claim;
use super::policy::EndUser;
use super::rejection::Rejection;
use super::token::EndUserToken;
use super::transfer::{Cause, Transfer};
use super::{
    apply_approval, apply_call, apply_dispute, apply_drift, apply_paid_call, apply_payout, apply_quote,
    apply_refund, apply_settlement, apply_topup, apply_user,
};
use crate::ids::{CallId, EventId, ExternalUserId, TokenId, TransferId, audit_id};
use crate::money::Micros;

/// Applies `command` to `books`.
///
/// # Errors
/// The [`Rejection`] says why nothing was changed.
pub fn apply(books: &mut Books, command: &Command) -> Result<Outcome, Rejection> {
    books.staged(|books| {
        let mut step = Step {
            books,
            command,
            transfers: 0,
            events: 0,
            before: None,
            after: None,
        };
        let outcome = match &command.action {
            Action::Grant(grant) => step.grant(grant),
            Action::Move(moved) => step.move_between(moved),
            Action::Hold(hold) => apply_call::hold(&mut step, hold),
            Action::MarkDispatched(call) => apply_call::mark_dispatched(&mut step, call),
            Action::Capture(capture) => apply_call::capture(&mut step, capture),
            Action::FinishStream(finish) => apply_call::finish_stream(&mut step, finish),
            Action::Release(release) => apply_call::release(&mut step, release),
            Action::Expire(call) => apply_call::expire(&mut step, call),
            Action::OpenTopup(new) => apply_topup::open(&mut step, new),
            Action::AttachCheckout(attach) => apply_topup::attach(&mut step, attach),
            Action::TopupReport(report) => apply_topup::report(&mut step, report),
            Action::SetAutoTopup(choice) => apply_topup::set_auto(&mut step, choice),
            Action::BeginAutoTopup(new) => apply_topup::begin_auto(&mut step, new),
            Action::OpenRefund(new) => apply_refund::open(&mut step, new),
            Action::RefundReport(report) => apply_refund::report(&mut step, report),
            Action::DisputeReport(report) => apply_dispute::report(&mut step, report),
            Action::MintToken(new) => apply_user::mint_token(&mut step, new),
            Action::RevokeTokens(revoke) => apply_user::revoke_tokens(&mut step, revoke),
            Action::SetPolicy(new) => apply_user::set_policy(&mut step, new),
            Action::SetFrozen(frozen) => apply_user::set_frozen(&mut step, frozen),
            Action::Retire(retire) => apply_user::retire(&mut step, retire),
            Action::DriftReport(report) => apply_drift::report(&mut step, report),
            Action::OpenPayout(new) => apply_payout::open(&mut step, new),
            Action::ReportPayout(report) => apply_payout::report(&mut step, report),
            Action::CancelPayout(payout) => apply_payout::cancel(&mut step, *payout),
            Action::ChangePayouts(change) => apply_payout::change(&mut step, change),
            Action::ClaimPaidCall(new) => apply_paid_call::claim(&mut step, new),
            Action::FinishPaidCall(finish) => apply_paid_call::finish(&mut step, finish),
            Action::FailPaidCall(fail) => apply_paid_call::fail(&mut step, fail),
            Action::AbandonPaidCall(call) => apply_paid_call::abandon(&mut step, call),
            Action::LeaseSettlement(lease) => apply_settlement::lease(&mut step, lease),
            Action::ReportSettlement(report) => apply_settlement::report(&mut step, report),
            Action::OpenQuote(new) => apply_quote::open(&mut step, new),
            Action::CancelQuote(cancel) => apply_quote::cancel(&mut step, cancel),
            Action::RequestApproval(new) => apply_approval::request(&mut step, new),
            Action::DecideApproval(decision) => apply_approval::decide(&mut step, decision),
        }?;
        step.write_note(&outcome)?;
        Ok(outcome)
    })
}

/// A movement of money about to be written.
pub(super) struct Posting<'a> {
    pub(super) debit: AccountKey,
    pub(super) credit: AccountKey,
    pub(super) amount: Micros,
    pub(super) cause: Cause,
    pub(super) call: Option<CallId>,
    pub(super) reference: &'a std::sync::Arc<str>,
    pub(super) attribution: Option<&'a std::sync::Arc<str>>,
}

/// One command at work on the books.
pub(super) struct Step<'a> {
    pub(super) books: &'a mut Books,
    pub(super) command: &'a Command,
    transfers: u32,
    events: u32,
    /// The thing before the command, for the audit row.
    pub(super) before: Option<std::sync::Arc<str>>,
    /// The thing afterwards.
    pub(super) after: Option<std::sync::Arc<str>>,
}

impl Step<'_> {
    pub(super) fn tenant(&self) -> Result<TenantHead, Rejection> {
        let id = self.command.tenant;
        if !self.books.tenants.is_loaded(&id) {
            return Err(Rejection::NotLoaded("tenant"));
        }
        self.books
            .tenants
            .get(&id)
            .copied()
            .ok_or(Rejection::UnknownTenant)
    }

    pub(super) fn active_tenant(&self) -> Result<TenantHead, Rejection> {
        let head = self.tenant()?;
        if head.status == TenantStatus::Active {
            Ok(head)
        } else {
            Err(Rejection::TenantNotActive(head.status))
        }
    }

    pub(super) fn account(&self, key: &AccountKey) -> Result<Account, Rejection> {
        if !self.books.accounts.is_loaded(key) {
            return Err(Rejection::NotLoaded("account"));
        }
        Ok(self.books.accounts.get(key).copied().unwrap_or_default())
    }

    pub(super) fn end_user(&self, id: &ExternalUserId) -> Result<Option<EndUser>, Rejection> {
        let key = (self.command.tenant, id.clone());
        if !self.books.end_users.is_loaded(&key) {
            return Err(Rejection::NotLoaded("end user"));
        }
        Ok(self.books.end_users.get(&key).cloned())
    }

    pub(super) fn token(&self, id: TokenId) -> Result<Option<EndUserToken>, Rejection> {
        let key = (self.command.tenant, id);
        if !self.books.tokens.is_loaded(&key) {
            return Err(Rejection::NotLoaded("token"));
        }
        Ok(self.books.tokens.get(&key).cloned())
    }

    /// Appends the command's audit row, unless the command was done before.
    fn write_note(&mut self, outcome: &Outcome) -> Result<(), Rejection> {
        let Some(note) = &self.command.note else {
            return Ok(());
        };
        if matches!(
            outcome,
            Outcome::Existing(_)
                | Outcome::Revoked(0)
                | Outcome::Frozen(false)
                | Outcome::Retired { already: true, .. }
                | Outcome::Payout { changed: false, .. }
                | Outcome::PayoutSettings { changed: false, .. }
                | Outcome::PaidCall { changed: false, .. }
                | Outcome::Quote { changed: false, .. }
                | Outcome::Approval { changed: false, .. }
        ) {
            return Ok(());
        }
        let mut note = AuditNote::clone(note);
        note.before = note.before.or(self.before.take());
        note.after = note.after.or(self.after.take());
        let mut head = self.tenant()?;
        head.audit_seq = head.audit_seq.checked_add(1).ok_or(Rejection::Overflow)?;
        let mut entry = AuditEntry {
            id: audit_id(self.command.at, self.command.id),
            tenant: self.command.tenant,
            at: self.command.at,
            note,
            seq: head.audit_seq,
            hash: [0; 32],
        };
        // INVARIANT: each row's hash continues the head's, and the head moves with it.
        entry.hash = entry.line().chained(&head.audit_chain);
        head.audit_chain = entry.hash;
        self.books.tenants.put(self.command.tenant, head);
        self.books.audits.push(entry);
        Ok(())
    }

    /// Takes an idempotency key for `subject`; `Some` when it stands for something already.
    pub(super) fn claim(&mut self, claim: &NewClaim, subject: Uuid) -> Result<Option<Uuid>, Rejection> {
        if !self.books.claims.is_loaded(&claim.key) {
            return Err(Rejection::NotLoaded("claim"));
        }
        match self.books.claims.get(&claim.key) {
            Some(taken) if taken.fingerprint == claim.fingerprint => Ok(Some(taken.subject)),
            Some(_) => Err(Rejection::ClaimConflict),
            None => {
                self.books.claims.put(
                    claim.key.clone(),
                    Claim {
                        fingerprint: claim.fingerprint,
                        subject,
                    },
                );
                Ok(None)
            }
        }
    }

    /// Moves money and chains the transfer. Returns its id; nothing is written for a zero amount.
    pub(super) fn post(&mut self, posting: Posting<'_>) -> Result<Option<TransferId>, Rejection> {
        if posting.amount.is_zero() {
            return Ok(None);
        }
        if posting.amount.is_negative() {
            return Err(Rejection::NotPositive);
        }
        // INVARIANT: every transfer debits one account and credits another of the same tenant, so that the
        // tenant's books sum to zero.
        let mut debit = self.account(&posting.debit)?;
        debit.posted = debit
            .posted
            .checked_sub(posting.amount)
            .ok_or(Rejection::Overflow)?;
        // INVARIANT: what customers spend from is never overdrawn, holds included.
        if posting.debit.is_spendable() && debit.posted < debit.held {
            return Err(Rejection::InsufficientCredits {
                required: posting.amount,
                available: self.account(&posting.debit)?.available(),
            });
        }
        let mut credit = self.account(&posting.credit)?;
        credit.posted = credit
            .posted
            .checked_add(posting.amount)
            .ok_or(Rejection::Overflow)?;

        let mut head = self.tenant()?;
        head.transfer_seq = head.transfer_seq.checked_add(1).ok_or(Rejection::Overflow)?;
        let id = TransferId::derive(self.command.at, self.command.id, self.transfers);
        self.transfers = self.transfers.saturating_add(1);
        let mut transfer = Transfer {
            seq: head.transfer_seq,
            id,
            debit: posting.debit,
            credit: posting.credit,
            amount: posting.amount,
            cause: posting.cause,
            call: posting.call,
            reference: posting.reference.clone(),
            attribution: posting.attribution.cloned(),
            debit_after: debit.posted,
            credit_after: credit.posted,
            created_at: self.command.at,
            hash: head.chain,
        };
        transfer.hash = transfer.chained(&head.chain);
        head.chain = transfer.hash;
        self.books.tenants.put(self.command.tenant, head);
        self.books.accounts.put(transfer.debit.clone(), debit);
        self.books.accounts.put(transfer.credit.clone(), credit);
        self.books.transfers.push(transfer);
        Ok(Some(id))
    }

    /// Writes an event with the payload members that every event has.
    pub(super) fn emit(
        &mut self,
        kind: EventType,
        end_user: Option<&ExternalUserId>,
        reference: &str,
        mut data: serde_json::Map<String, serde_json::Value>,
    ) -> Result<(), Rejection> {
        data.insert(
            "externalUserId".to_owned(),
            end_user.map_or(json!(null), |id| json!(id.as_str())),
        );
        data.insert("reference".to_owned(), json!(reference));
        data.insert("occurredAt".to_owned(), json!(self.command.at));
        let mut head = self.tenant()?;
        head.event_seq = head.event_seq.checked_add(1).ok_or(Rejection::Overflow)?;
        self.books.tenants.put(self.command.tenant, head);
        let event = Event {
            seq: head.event_seq,
            id: EventId::derive(self.command.at, self.command.id, self.events),
            kind,
            created_at: self.command.at,
            data: serde_json::Value::Object(data).to_string().into(),
        };
        self.events = self.events.saturating_add(1);
        self.books.events.push((self.command.tenant, event));
        Ok(())
    }

    /// Tells of a changed settled balance of `payer`.
    pub(super) fn emit_balance_changed(
        &mut self,
        payer: &Payer,
        before: Micros,
        after: Micros,
        cause: Cause,
        entry: TransferId,
    ) -> Result<(), Rejection> {
        let delta = after.checked_sub(before).ok_or(Rejection::Overflow)?;
        let data = object([
            ("previousUsd", json!(before)),
            ("balanceUsd", json!(after)),
            ("deltaUsd", json!(delta)),
            ("cause", json!(cause)),
            ("entryId", json!(entry)),
        ]);
        let reference = entry.to_string();
        self.emit(
            EventType::BalanceChanged,
            payer.external_user_id(),
            &reference,
            data,
        )?;
        let kind = payer.account(self.command.tenant).kind;
        match self.tenant()?.low_balance.of(kind) {
            Some(threshold) if before >= threshold && after < threshold => {
                let data = object([("balanceUsd", json!(after)), ("thresholdUsd", json!(threshold))]);
                self.emit(EventType::BalanceLow, payer.external_user_id(), &reference, data)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn ensure_end_user(&mut self, payer: &Payer) -> Result<(), Rejection> {
        let Payer::EndUser(id) = payer else { return Ok(()) };
        match self.end_user(id)? {
            Some(user) if user.retired => Err(Rejection::EndUserRetired),
            Some(_) => Ok(()),
            None => {
                let user = EndUser::new(id.clone(), self.command.at);
                self.books.end_users.put((self.command.tenant, id.clone()), user);
                Ok(())
            }
        }
    }

    fn grant(&mut self, grant: &Grant) -> Result<Outcome, Rejection> {
        if grant.amount <= Micros::ZERO {
            return Err(Rejection::NotPositive);
        }
        if let Some(claim) = &grant.claim
            && let Some(subject) = self.claim(claim, self.command.id.0)?
        {
            return Ok(Outcome::Existing(subject));
        }
        if self.tenant()?.status == TenantStatus::Closed {
            return Err(Rejection::TenantNotActive(TenantStatus::Closed));
        }
        self.ensure_end_user(&grant.to)?;
        let from = match grant.source {
            GrantSource::ManualGrant => AccountKind::Funding,
            GrantSource::Promotion => AccountKind::Bonus,
        };
        let to = grant.to.account(self.command.tenant);
        let before = self.account(&to)?.posted;
        let transfer = self
            .post(Posting {
                debit: AccountKey::of(self.command.tenant, from),
                credit: to.clone(),
                amount: grant.amount,
                cause: Cause::Grant,
                call: None,
                reference: &grant.reason,
                attribution: None,
            })?
            .ok_or(Rejection::NotPositive)?;
        let account = self.account(&to)?;
        self.emit_granted(grant, account.posted, transfer)?;
        self.emit_balance_changed(&grant.to, before, account.posted, Cause::Grant, transfer)?;
        Ok(Outcome::Granted {
            transfer,
            balance: account.balance(),
        })
    }

    /// Tells of credits that arrived without a checkout session, with the members of every top-up's event.
    fn emit_granted(&mut self, grant: &Grant, balance: Micros, entry: TransferId) -> Result<(), Rejection> {
        let rate = self.tenant()?.credits_per_dollar;
        let data = object([
            ("amountUsd", json!(grant.amount)),
            ("balanceUsd", json!(balance)),
            ("source", json!(grant.source)),
            ("metadata", json!({})),
            ("bonusUsd", json!(Micros::ZERO)),
            ("sessionId", json!(null)),
            ("feeUsd", json!(Micros::ZERO)),
            ("amountCredits", json!(rate.credits(grant.amount))),
            ("balanceCredits", json!(rate.credits(balance))),
        ]);
        let reference = entry.to_string();
        self.emit(
            EventType::TopupCompleted,
            grant.to.external_user_id(),
            &reference,
            data,
        )
    }

    fn move_between(&mut self, moved: &Move) -> Result<Outcome, Rejection> {
        if moved.amount <= Micros::ZERO {
            return Err(Rejection::NotPositive);
        }
        if let Some(claim) = &moved.claim
            && let Some(subject) = self.claim(claim, self.command.id.0)?
        {
            return Ok(Outcome::Existing(subject));
        }
        self.active_tenant()?;
        let user = Payer::EndUser(moved.end_user.clone());
        match self.end_user(&moved.end_user)? {
            None if !moved.to_end_user => return Err(Rejection::UnknownEndUser),
            _ => self.ensure_end_user(&user)?,
        }
        let (from, to, cause) = if moved.to_end_user {
            (Payer::Pool, user.clone(), Cause::Allocate)
        } else {
            (user.clone(), Payer::Pool, Cause::Deallocate)
        };
        let (debit, credit) = (from.account(self.command.tenant), to.account(self.command.tenant));
        let (from_before, to_before) = (self.account(&debit)?, self.account(&credit)?);
        if from_before.status != AccountStatus::Active || to_before.status != AccountStatus::Active {
            return Err(Rejection::AccountFrozen);
        }
        let transfer = self
            .post(Posting {
                debit: debit.clone(),
                credit: credit.clone(),
                amount: moved.amount,
                cause,
                call: None,
                reference: &moved.reference,
                attribution: None,
            })?
            .ok_or(Rejection::NotPositive)?;
        let (from_after, to_after) = (self.account(&debit)?, self.account(&credit)?);
        self.emit_balance_changed(&from, from_before.posted, from_after.posted, cause, transfer)?;
        self.emit_balance_changed(&to, to_before.posted, to_after.posted, cause, transfer)?;
        let balance_of = |payer: &Payer| -> Result<Balance, Rejection> {
            Ok(self.account(&payer.account(self.command.tenant))?.balance())
        };
        let receipt = MoveReceipt {
            transfer,
            amount: moved.amount,
            pool: balance_of(&Payer::Pool)?,
            end_user: balance_of(&user)?,
        };
        if moved.claim.is_some() {
            let outcome = StoredOutcome {
                kind: OutcomeKind::Success,
                body: Some(json!(receipt).to_string().into()),
                expires_at: self.command.at.plus_millis(MOVE_KEPT_MS),
            };
            let subject = CallId(self.command.id.0);
            self.books.outcomes.push((self.command.tenant, subject, outcome));
        }
        Ok(Outcome::Moved(receipt))
    }
}

/// A JSON object of the given members.
pub(super) fn object<const N: usize>(
    members: [(&str, serde_json::Value); N],
) -> serde_json::Map<String, serde_json::Value> {
    members
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
