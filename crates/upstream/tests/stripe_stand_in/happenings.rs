//! What happens at Stripe without a request of ours, and the events that tell of it.

use serde_json::{Value, json};

use super::{State, StripeStandIn, objects};

impl State {
    pub(super) fn emit(&mut self, kind: &str, object: &Value) {
        let id = self.id("evt");
        let event = objects::event(&id, kind, object, self.now(), self.livemode);
        self.events.push_back(event);
    }

    /// Tells of an object as it is now.
    fn tell(&mut self, kind: &str, id: &str) {
        let object = self.object(id).clone();
        self.emit(kind, &object);
    }

    /// A session's page was filled in; makes the payment, which is under way.
    fn complete(&mut self, session: &str) -> String {
        let (payment, charge, method) = (self.id("pi"), self.id("ch"), self.id("pm"));
        let new_customer = self.id("cus");
        let (metadata, setup_future_usage) = self.payment_forms[session].clone();
        let (now, live) = (self.now(), self.livemode);
        let page = self.object(session);
        assert_ne!(page["status"], "complete", "{session} is paid once");
        page["status"] = "complete".into();
        page["url"] = Value::Null;
        page["payment_intent"] = payment.clone().into();
        if page["customer"].is_null() && page["customer_creation"] == "always" {
            page["customer"] = new_customer.into();
        }
        let intent = objects::intent(&objects::NewIntent {
            id: &payment,
            charge: &charge,
            amount: page["amount_total"].as_i64().unwrap(),
            currency: page["currency"].clone(),
            customer: page["customer"].clone(),
            method: method.into(),
            metadata,
            setup_future_usage,
            now,
            live,
        });
        self.keep("payment_intent", &payment, intent);
        payment
    }

    /// A payment's money arrived.
    pub(super) fn succeed(&mut self, payment: &str) {
        let intent = self.object(payment);
        intent["status"] = "succeeded".into();
        intent["amount_received"] = intent["amount"].clone();
        self.tell("payment_intent.succeeded", payment);
    }

    pub(super) fn decline(&mut self, payment: &str, code: &str) {
        let intent = self.object(payment);
        intent["status"] = "requires_payment_method".into();
        let words = "Your card was declined.";
        intent["last_payment_error"] = json!({"type": "card_error", "code": code, "message": words});
        self.tell("payment_intent.payment_failed", payment);
    }

    pub(super) fn expire(&mut self, session: &str) {
        let page = self.object(session);
        page["status"] = "expired".into();
        page["url"] = Value::Null;
        self.tell("checkout.session.expired", session);
    }

    fn refunded(&self, payment: &str) -> i64 {
        let refunds = self.objects.values().filter(|object| {
            object["object"] == "refund"
                && object["payment_intent"] == payment
                && object["status"] != "failed"
                && object["status"] != "canceled"
        });
        refunds.filter_map(|refund| refund["amount"].as_i64()).sum()
    }

    pub(super) fn unrefunded(&self, payment: &str) -> i64 {
        let received = self.objects[payment]["amount_received"].as_i64().unwrap();
        received - self.refunded(payment)
    }

    pub(super) fn is_disputed(&self, payment: &str) -> bool {
        self.objects.values().any(|object| {
            object["object"] == "dispute"
                && object["payment_intent"] == payment
                && object["is_charge_refundable"] == false
        })
    }

    pub(super) fn refund(&mut self, payment: &str, cents: i64, metadata: &Value) -> String {
        let id = self.id("re");
        let intent = self.object(payment).clone();
        let mut refund = objects::refund(&id, &intent, cents, metadata, self.now());
        if self.pending_refunds {
            refund["status"] = "pending".into();
        }
        self.keep("refund", &id, refund);
        self.tell("refund.created", &id);
        let charge = objects::charge(&intent, self.refunded(payment));
        self.emit("charge.refunded", &charge);
        id
    }

    fn dispute(&mut self, payment: &str, cents: i64, status: &str) -> String {
        let id = self.id("du");
        let intent = self.object(payment).clone();
        let dispute = objects::dispute(&id, &intent, cents, status, self.now());
        self.keep("dispute", &id, dispute);
        self.tell("charge.dispute.created", &id);
        if status == "needs_response" {
            self.tell("charge.dispute.funds_withdrawn", &id);
        }
        id
    }
}

impl StripeStandIn {
    /// The customer pays; returns the payment. Also works on a session that has expired, as a race would.
    pub(crate) fn pay(&self, session: &str) -> String {
        let mut state = self.state();
        let payment = state.complete(session);
        state.succeed(&payment);
        state.object(session)["payment_status"] = "paid".into();
        state.tell("checkout.session.completed", session);
        payment
    }

    /// The customer pays by a method whose money comes later; returns the payment.
    pub(crate) fn pay_later(&self, session: &str) -> String {
        let mut state = self.state();
        let payment = state.complete(session);
        state.tell("checkout.session.completed", session);
        payment
    }

    /// The money of [`Self::pay_later`] arrives.
    pub(crate) fn async_succeed(&self, session: &str) {
        let mut state = self.state();
        let payment = state.object(session)["payment_intent"]
            .as_str()
            .unwrap()
            .to_owned();
        state.succeed(&payment);
        state.object(session)["payment_status"] = "paid".into();
        state.tell("checkout.session.async_payment_succeeded", session);
    }

    /// The money of [`Self::pay_later`] does not arrive.
    pub(crate) fn async_fail(&self, session: &str) {
        let mut state = self.state();
        let payment = state.object(session)["payment_intent"]
            .as_str()
            .unwrap()
            .to_owned();
        state.decline(&payment, "payment_intent_payment_attempt_failed");
        state.tell("checkout.session.async_payment_failed", session);
    }

    /// The page stops working.
    pub(crate) fn expire(&self, session: &str) {
        self.state().expire(session);
    }

    /// A charge of `pm_card_processing` arrives or fails.
    pub(crate) fn settle_charge(&self, payment: &str, succeeds: bool) {
        let mut state = self.state();
        if succeeds {
            state.succeed(payment);
        } else {
            state.decline(payment, "card_declined");
        }
    }

    /// Someone gives money back in Stripe's dashboard; returns the refund.
    pub(crate) fn refund(&self, payment: &str, cents: i64) -> String {
        self.state().refund(payment, cents, &json!({}))
    }

    /// A pending refund reaches the customer.
    pub(crate) fn settle_refund(&self, refund: &str) {
        let mut state = self.state();
        state.object(refund)["status"] = "succeeded".into();
        state.tell("refund.updated", refund);
    }

    /// A refund comes back, also after it had succeeded.
    pub(crate) fn fail_refund(&self, refund: &str) {
        let mut state = self.state();
        state.object(refund)["status"] = "failed".into();
        state.object(refund)["failure_reason"] = "expired_or_canceled_card".into();
        state.tell("refund.failed", refund);
        state.tell("refund.updated", refund);
    }

    /// The customer disputes a payment and the bank takes the money; returns the dispute.
    pub(crate) fn open_dispute(&self, payment: &str, cents: i64) -> String {
        self.state().dispute(payment, cents, "needs_response")
    }

    /// The bank inquires; no money moves. Returns the dispute.
    pub(crate) fn warn(&self, payment: &str, cents: i64) -> String {
        self.state().dispute(payment, cents, "warning_needs_response")
    }

    /// An inquiry becomes a dispute.
    pub(crate) fn escalate(&self, dispute: &str) {
        let mut state = self.state();
        state.object(dispute)["status"] = "needs_response".into();
        state.object(dispute)["is_charge_refundable"] = false.into();
        state.tell("charge.dispute.updated", dispute);
        state.tell("charge.dispute.funds_withdrawn", dispute);
    }

    /// Decides a dispute; an inquiry is closed, however it ends.
    pub(crate) fn close_dispute(&self, dispute: &str, won: bool) {
        let mut state = self.state();
        let inquiry = state.object(dispute)["status"]
            .as_str()
            .unwrap()
            .starts_with("warning");
        let status = match (inquiry, won) {
            (true, _) => "warning_closed",
            (false, true) => "won",
            (false, false) => "lost",
        };
        state.object(dispute)["status"] = status.into();
        state.tell("charge.dispute.closed", dispute);
        if status == "won" {
            state.tell("charge.dispute.funds_reinstated", dispute);
        }
    }

    /// The owner of an account has told Stripe everything.
    pub(crate) fn finish_onboarding(&self, account: &str) {
        let mut state = self.state();
        let account = state.object(account);
        account["details_submitted"] = true.into();
        account["payouts_enabled"] = true.into();
        account["capabilities"]["transfers"] = "active".into();
        account["requirements"]["disabled_reason"] = Value::Null;
    }

    /// Tells of an account as it is now, from the account itself.
    pub(crate) fn tell_of_account(&self, account: &str) {
        let mut state = self.state();
        state.tell("account.updated", account);
        if let Some(event) = state.events.back_mut() {
            event["account"] = account.into();
        }
    }

    /// Money that was sent to an account is taken back.
    pub(crate) fn reverse_transfer(&self, transfer: &str, cents: i64) {
        let mut state = self.state();
        let object = state.object(transfer);
        let reversed = object["amount_reversed"].as_i64().unwrap() + cents;
        object["amount_reversed"] = reversed.into();
        object["reversed"] = (object["amount"] == reversed).into();
        state.tell("transfer.reversed", transfer);
    }
}
