//! One client of the bank: does something at random and notes what it was told.

use std::sync::Arc;
use std::time::Duration;

use turnpike_core::ids::TenantId;
use turnpike_core::ledger::command::{
    AttachCheckout, Capture, FinishStream, NewHold, PaymentState, SetFrozen,
};
use turnpike_core::ledger::payout::PayoutProgress;
use turnpike_core::ledger::topup::{DisputeState, RefundState};
use turnpike_core::ledger::{Action, Outcome, Payer, Rejection};
use turnpike_store::{Store, SubmitError, TopupFilter};

use super::board::{Board, recent};
use super::{Entry, Said};
use crate::actions::{
    answer, capture, charge, claim, command, grant, move_to, new_hold, reference, release, usd, user,
};
use crate::money_in::{
    dispute_told, mint, new_refund, new_token, new_topup, note, open_topup, refund_told, retire, revoke, told,
};
use crate::payouts::{new_payout, pay_out, progress};
use crate::world::Dice;

/// By hand, whatever disputes and debts have frozen.
fn free(name: &str) -> Action {
    Action::SetFrozen(SetFrozen {
        payer: user(name),
        frozen: false,
        reason: "looked at".into(),
    })
}

pub(super) struct Client {
    pub(super) store: Arc<dyn Store>,
    board: Arc<Board>,
    dice: Dice,
    pub(super) entries: Vec<Entry>,
}

impl Client {
    pub(super) fn new(store: Arc<dyn Store>, board: Arc<Board>, dice: Dice) -> Self {
        Self {
            store,
            board,
            dice,
            entries: Vec::new(),
        }
    }

    fn amount(&mut self, most: u64) -> i64 {
        i64::try_from(self.dice.roll(most) + 1).unwrap()
    }

    /// Waits for the answer, as a client does that has to go on.
    pub(super) async fn run(&mut self, tenant: TenantId, action: Action) -> Option<Outcome> {
        self.submit(tenant, action, None).await
    }

    /// Now and then the client goes away before the answer is there.
    async fn try_run(&mut self, tenant: TenantId, action: Action) -> Option<Outcome> {
        let patience = match self.dice.roll(25) {
            0 => Some(Duration::from_micros(self.dice.roll(1_500))),
            _ => None,
        };
        self.submit(tenant, action, patience).await
    }

    async fn submit(
        &mut self,
        tenant: TenantId,
        action: Action,
        patience: Option<Duration>,
    ) -> Option<Outcome> {
        let mut command = command(tenant, action);
        if self.dice.roll(4) == 0 {
            command.note = Some(note("bank"));
        }
        let asked = self.store.submit(command.clone());
        let answer = match patience {
            Some(patience) => tokio::time::timeout(patience, asked)
                .await
                .unwrap_or(Err(SubmitError::Unknown)),
            None => asked.await,
        };
        let said = match answer {
            Ok(outcome) => Said::Done(outcome),
            Err(SubmitError::Unknown) => Said::Unknown,
            Err(SubmitError::Rejected(
                reason @ (Rejection::NotLoaded(_) | Rejection::Overflow | Rejection::UnknownTenant),
            )) => {
                panic!("{reason}: {command:?}")
            }
            Err(SubmitError::Rejected(_) | SubmitError::Busy | SubmitError::Unavailable(_)) => Said::Nothing,
        };
        let outcome = match &said {
            Said::Done(outcome) => Some(outcome.clone()),
            Said::Nothing | Said::Unknown => None,
        };
        self.entries.push(Entry { command, said });
        outcome
    }

    pub(super) async fn operate(&mut self) {
        let tenant = self.board.tenant(&mut self.dice);
        let slot = self.board.slot(&mut self.dice);
        let name = self.board.name(tenant, slot);
        match self.dice.roll(24) {
            0 => self.give(tenant, &name).await,
            1 | 2 => {
                let (amount, to_user) = (self.amount(200_000), self.dice.roll(2) == 0);
                self.try_run(tenant, move_to(&name, amount, to_user)).await;
            }
            3..8 => self.call(tenant, &name).await,
            8 | 9 => self.buy(tenant, &name).await,
            10..13 => self.tell_payment().await,
            13 => self.ask_refund().await,
            14 => self.tell_refund().await,
            15 | 16 => self.tell_dispute().await,
            17 => {
                let most = self.amount(50_000);
                let new = new_token(&name, (most % 3 != 0).then_some(most));
                self.board.state().tokens.push((tenant, new.clone()));
                self.try_run(tenant, mint(&new)).await;
            }
            18 => {
                let token = recent(&self.board.state().tokens, &mut self.dice);
                if let Some((tenant, token)) = token {
                    let only = (self.dice.roll(3) > 0).then_some(token.id);
                    self.try_run(tenant, revoke(token.token.owner.as_owner(), only))
                        .await;
                }
            }
            19 => drop(self.try_run(tenant, free(&name)).await),
            20 => {
                let mut new = new_payout((self.dice.roll(2) == 0).then(|| self.amount(20_000)));
                new.min = usd(1);
                self.board.state().payouts.push((tenant, new.id));
                self.try_run(tenant, pay_out(&new)).await;
            }
            21 | 22 => self.tell_payout().await,
            _ => self.leave(tenant, slot, &name).await,
        }
    }

    async fn tell_payout(&mut self) {
        let known = recent(&self.board.state().payouts, &mut self.dice);
        let Some((tenant, payout)) = known else { return };
        let action = match self.dice.roll(5) {
            0 => progress(payout, PayoutProgress::Begun),
            1 => progress(payout, PayoutProgress::Paid("tx".into())),
            2 => progress(payout, PayoutProgress::Failed("no".into())),
            3 => progress(payout, PayoutProgress::Reversed("back".into())),
            _ => Action::CancelPayout(payout),
        };
        self.try_run(tenant, action).await;
    }

    /// A grant whose key may be another client's too.
    async fn give(&mut self, tenant: TenantId, name: &str) {
        let mut action = grant(&user(name), self.amount(9_000));
        if let Action::Grant(grant) = &mut action {
            let key = format!("grant-{}", self.dice.roll(200));
            let fingerprint = u8::try_from(self.dice.roll(2)).unwrap();
            grant.claim = Some(claim(tenant, &key, fingerprint));
        }
        self.try_run(tenant, action).await;
    }

    async fn call(&mut self, tenant: TenantId, name: &str) {
        let payer = if self.dice.roll(5) == 0 {
            Payer::Pool
        } else {
            user(name)
        };
        let amount = self.amount(20_000);
        let mut hold = new_hold(&payer, amount);
        if self.dice.roll(3) == 0 {
            hold.claim = Some(claim(tenant, &format!("call-{}", self.dice.roll(500)), 1));
        }
        let owner = payer.external_user_id().cloned();
        let token = self
            .board
            .state()
            .tokens
            .iter()
            .rev()
            .find(|(of, new)| *of == tenant && new.token.owner.external_user_id() == owner.as_ref())
            .map(|(_, new)| new.id);
        hold.token = token.filter(|_| self.dice.roll(2) == 0);
        let Some(Outcome::Held(_)) = self.try_run(tenant, Action::Hold(Box::new(hold.clone()))).await else {
            return;
        };
        if self.dice.roll(2) == 0 {
            self.try_run(tenant, Action::MarkDispatched(reference(&hold)))
                .await;
        }
        match self.dice.roll(5) {
            0 => drop(self.try_run(tenant, release(&hold, None)).await),
            1 | 2 => drop(self.try_run(tenant, capture(&hold, amount / 2, amount / 4)).await),
            3 => self.stream(tenant, &hold, amount).await,
            // As the sweeper does; or left to it.
            _ if self.dice.roll(4) > 0 => drop(self.try_run(tenant, Action::Expire(reference(&hold))).await),
            _ => {}
        }
    }

    async fn stream(&mut self, tenant: TenantId, hold: &NewHold, amount: i64) {
        let (base, margin) = (amount / 2, amount / 4);
        let begin = Action::Capture(Box::new(Capture {
            call: reference(hold),
            charge: charge(base, margin),
            usage: None,
            drift: None,
            outcome: None,
        }));
        if self.try_run(tenant, begin).await.is_none() {
            return;
        }
        let end = Action::FinishStream(Box::new(FinishStream {
            call: reference(hold),
            charge: charge(base / 2, margin / 2),
            refund_kind: "stream_true_up",
            usage: None,
            drift: None,
            failure: None,
            outcome: answer("data: x\n\n"),
        }));
        self.try_run(tenant, end).await;
    }

    async fn buy(&mut self, tenant: TenantId, name: &str) {
        let owner = (self.dice.roll(4) > 0).then_some(name);
        let mut new = new_topup(owner, self.amount(100));
        if self.dice.roll(2) == 0 {
            new.claim = Some(claim(tenant, &format!("topup-{}", self.dice.roll(300)), 1));
        }
        let opened = self.try_run(tenant, open_topup(&new)).await;
        // Also when the answer is not known: then the processor may tell of one that is not there.
        if !matches!(opened, Some(Outcome::Existing(_))) {
            self.board.state().topups.push((tenant, new.clone()));
        }
        if opened.is_some() && self.dice.roll(2) == 0 {
            let attach = AttachCheckout {
                topup: new.topup(),
                id: format!("page_{}", new.id).into(),
                url: "https://pay.example/".into(),
            };
            self.try_run(tenant, Action::AttachCheckout(attach)).await;
        }
    }

    /// News of somebody's top-up: twice, late, in any order, told or asked for.
    async fn tell_payment(&mut self) {
        let Some((tenant, new)) = recent(&self.board.state().topups, &mut self.dice) else {
            return;
        };
        let state = match self.dice.roll(8) {
            0 => PaymentState::Expired,
            1 => PaymentState::Failed,
            2 => PaymentState::Processing,
            _ => PaymentState::Paid,
        };
        let event =
            (self.dice.roll(3) > 0).then(|| format!("evt_{}_{state:?}_{}", new.id, self.dice.roll(2)));
        for _ in 0..=self.dice.roll(2) {
            self.try_run(tenant, told(&new, state, event.as_deref())).await;
        }
    }

    async fn ask_refund(&mut self) {
        let Some((tenant, new)) = recent(&self.board.state().topups, &mut self.dice) else {
            return;
        };
        let cents = (self.dice.roll(3) > 0).then(|| self.amount(60));
        let refund = new_refund(&new, cents);
        let Some(Outcome::Topup(topup)) = self
            .try_run(tenant, Action::OpenRefund(Box::new(refund.clone())))
            .await
        else {
            return;
        };
        if let Some(asked) = topup.refunds.iter().find(|asked| asked.id == refund.id) {
            self.board
                .state()
                .refunds
                .push((tenant, new, asked.id, asked.cents));
        }
    }

    /// News of a refund that was asked for here, or of one made at the processor.
    async fn tell_refund(&mut self) {
        let state = match self.dice.roll(6) {
            0 => RefundState::Failed,
            1 => RefundState::Pending,
            2 => RefundState::Canceled,
            _ => RefundState::Succeeded,
        };
        let asked = recent(&self.board.state().refunds, &mut self.dice).filter(|_| self.dice.roll(3) > 0);
        if let Some((tenant, new, id, cents)) = asked {
            self.try_run(
                tenant,
                refund_told(&new, Some(id), &format!("re_{id}"), cents, state),
            )
            .await;
            return;
        }
        let Some((tenant, new)) = recent(&self.board.state().topups, &mut self.dice) else {
            return;
        };
        let (name, cents) = (format!("re_{}_{}", new.id, self.dice.roll(2)), self.amount(60));
        self.try_run(tenant, refund_told(&new, None, &name, cents, state))
            .await;
    }

    async fn tell_dispute(&mut self) {
        let Some((tenant, new)) = recent(&self.board.state().topups, &mut self.dice) else {
            return;
        };
        let name = format!("dp_{}_{}", new.id, self.dice.roll(2));
        let cents = self.amount(100);
        let mut states = vec![
            DisputeState::Open,
            DisputeState::Won,
            DisputeState::Lost,
            DisputeState::Warning,
        ];
        for _ in 0..=self.dice.roll(2) {
            let at = usize::try_from(self.dice.roll(u64::try_from(states.len()).unwrap())).unwrap();
            let state = states.swap_remove(at);
            self.try_run(tenant, dispute_told(&new, &name, cents, state))
                .await;
        }
    }

    /// The processor's last word on all that the end user has open.
    async fn settle(&mut self, tenant: TenantId, name: &str) {
        let filter = TopupFilter {
            payer: Some(user(name)),
            before: None,
            limit: 50,
        };
        for topup in self.store.list_topups(tenant, &filter).await.unwrap_or_default() {
            let known = self
                .board
                .state()
                .topups
                .iter()
                .rev()
                .find(|(_, new)| new.id == topup.id)
                .cloned();
            let Some((_, new)) = known else { continue };
            if topup.state.is_open() {
                self.try_run(tenant, told(&new, PaymentState::Failed, None)).await;
            }
            for refund in topup
                .refunds
                .iter()
                .filter(|refund| refund.state == RefundState::Pending)
            {
                let reference = refund
                    .reference
                    .clone()
                    .unwrap_or_else(|| format!("re_{}", refund.id).into());
                let told = refund_told(
                    &new,
                    Some(refund.id),
                    &reference,
                    refund.cents,
                    RefundState::Succeeded,
                );
                self.try_run(tenant, told).await;
            }
            for dispute in &topup.disputes {
                if matches!(dispute.state, DisputeState::Open | DisputeState::Warning) {
                    let state = if self.dice.roll(2) == 0 {
                        DisputeState::Won
                    } else {
                        DisputeState::Lost
                    };
                    let told = dispute_told(&new, &dispute.reference, dispute.cents, state);
                    self.try_run(tenant, told).await;
                }
            }
        }
    }

    /// Gives back what there is, and leaves.
    async fn leave(&mut self, tenant: TenantId, slot: usize, name: &str) {
        if self.dice.roll(2) == 0 {
            self.settle(tenant, name).await;
        }
        self.try_run(tenant, free(name)).await;
        let account = self
            .store
            .find_account(&user(name).account(tenant))
            .await
            .unwrap_or_default();
        let available = account.unwrap_or_default().available().get();
        if available > 0 {
            self.run(tenant, move_to(name, available, false)).await;
        }
        let left = self.try_run(tenant, retire(name)).await;
        if matches!(left, Some(Outcome::Retired { .. })) {
            self.board.replace(tenant, slot, name);
        }
    }
}
