//! Stripe's objects → reports.
//!
//! The rule: what is absent or null is left out of the report, since an account may be shared with others
//! whose objects look different; what is there in another type than Stripe documents, or a state that nobody
//! has heard of, is [`Malformed`] and never guessed. A report says what Stripe says; whether it fits our row is
//! checked by the app.

use serde_json::Value;

use super::form::{OFF_SESSION, REFUND, SESSION};
use crate::processor::{
    Checkout, DisputeReport, DisputeState, EventError, PaymentReport, PaymentState, RefundReport, RefundState,
};

/// Longest words of a failure that are kept.
const MAX_WORDS_CHARS: usize = 300;

/// What is wrong with an object: names of fields, nothing of the sender's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) String);

impl From<Malformed> for EventError {
    fn from(Malformed(what): Malformed) -> Self {
        Self::Malformed(what)
    }
}

/// An object whose fields are read with their types.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(&'a Value);

impl<'a> Fields<'a> {
    pub(super) fn of(value: &'a Value) -> Result<Self, Malformed> {
        if value.is_object() {
            Ok(Self(value))
        } else {
            Err(Malformed("not an object".to_owned()))
        }
    }

    fn present(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A string, absent or null.
    pub(super) fn text(self, name: &str) -> Result<Option<&'a str>, Malformed> {
        self.present(name)
            .map(|value| value.as_str().ok_or_else(|| wrong(name)))
            .transpose()
    }

    pub(super) fn needed_text(self, name: &str) -> Result<&'a str, Malformed> {
        self.text(name)?.ok_or_else(|| missing(name))
    }

    pub(super) fn integer(self, name: &str) -> Result<Option<i64>, Malformed> {
        self.present(name)
            .map(|value| value.as_i64().ok_or_else(|| wrong(name)))
            .transpose()
    }

    pub(super) fn flag(self, name: &str) -> Result<Option<bool>, Malformed> {
        self.present(name)
            .map(|value| value.as_bool().ok_or_else(|| wrong(name)))
            .transpose()
    }

    pub(super) fn object(self, name: &str) -> Result<Option<Fields<'a>>, Malformed> {
        self.present(name)
            .map(|value| Self::of(value).map_err(|_other| wrong(name)))
            .transpose()
    }

    /// An id, alone or as the object it names.
    pub(super) fn reference(self, name: &str) -> Result<Option<&'a str>, Malformed> {
        match self.present(name) {
            Some(Value::String(id)) => Ok(Some(id)),
            Some(Value::Object(_)) => self.object(name)?.map(|it| it.needed_text("id")).transpose(),
            None => Ok(None),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) => Err(wrong(name)),
        }
    }

    /// The object behind an id that was expanded.
    fn expanded(self, name: &str) -> Option<Fields<'a>> {
        self.0.get(name).filter(|value| value.is_object()).map(Fields)
    }

    pub(super) fn metadata(self, name: &str) -> Result<Option<&'a str>, Malformed> {
        match self.object("metadata")? {
            Some(metadata) => metadata.text(name),
            None => Ok(None),
        }
    }

    pub(super) fn money(self, amount: &str) -> Result<(i64, String), Malformed> {
        let cents = self.integer(amount)?.unwrap_or_default();
        let currency = self.text("currency")?.unwrap_or_default().to_ascii_lowercase();
        Ok((cents, currency))
    }
}

fn wrong(name: &str) -> Malformed {
    Malformed(format!("{name} has another type"))
}

fn missing(name: &str) -> Malformed {
    Malformed(format!("{name} is missing"))
}

fn unheard_of(name: &str) -> Malformed {
    Malformed(format!("{name} has an unknown value"))
}

/// `text` cut to what is kept of a processor's words.
pub(super) fn words(text: &str) -> String {
    text.chars().take(MAX_WORDS_CHARS).collect()
}

/// The page to send a customer to.
pub(super) fn checkout(answer: &Value) -> Result<Checkout, Malformed> {
    let session = Fields::of(answer)?;
    Ok(Checkout {
        id: session.needed_text("id")?.to_owned(),
        url: session.needed_text("url")?.to_owned(),
    })
}

/// A `checkout.session`; `None` when it is not about a payment.
pub(super) fn session(session: Fields<'_>, state: PaymentState) -> Result<Option<PaymentReport>, Malformed> {
    if !matches!(session.text("mode")?, None | Some("payment")) {
        return Ok(None);
    }
    let (amount_cents, currency) = session.money("amount_total")?;
    let reference = match session.text("client_reference_id")? {
        Some(reference) => Some(reference),
        None => session.metadata(SESSION)?,
    };
    let intent = session.expanded("payment_intent");
    let (method, failure) = match intent {
        Some(intent) => (saved_method(intent)?, failure(intent)?),
        None => (None, None),
    };
    Ok(Some(PaymentReport {
        session: Some(session.needed_text("id")?.to_owned()),
        reference: reference.map(str::to_owned),
        state,
        payment: session.reference("payment_intent")?.map(str::to_owned),
        amount_cents,
        currency,
        customer: session.reference("customer")?.map(str::to_owned),
        method,
        // A card that was declined before another was taken is no failure of the session.
        failure: failure.filter(|_| state == PaymentState::Failed),
    }))
}

/// What a session's `payment_status` says of a session that the customer completed.
pub(super) fn completed_state(session: Fields<'_>) -> Result<PaymentState, Malformed> {
    match session.text("payment_status")? {
        Some("paid" | "no_payment_required") => Ok(PaymentState::Paid),
        Some("unpaid") | None => Ok(PaymentState::Processing),
        Some(_) => Err(unheard_of("payment_status")),
    }
}

/// The state of a session that was looked up, with its payment expanded where there is one.
pub(super) fn session_state(session: Fields<'_>) -> Result<PaymentState, Malformed> {
    let paid = completed_state(session)? == PaymentState::Paid;
    match session.text("status")? {
        // `no_payment_required` of an open page is not yet anything.
        Some("open") | None => Ok(PaymentState::Open),
        Some("expired" | "complete") if paid => Ok(PaymentState::Paid),
        Some("expired") => Ok(PaymentState::Expired),
        Some("complete") => match session.expanded("payment_intent") {
            Some(intent) => match intent.text("status")? {
                // A completed page takes no second card.
                Some("requires_payment_method" | "canceled") => Ok(PaymentState::Failed),
                Some(_) | None => Ok(PaymentState::Processing),
            },
            None => Ok(PaymentState::Processing),
        },
        Some(_) => Err(unheard_of("status")),
    }
}

/// Whether an intent is a charge of ours, made without a page.
pub(super) fn is_off_session(intent: Fields<'_>) -> Result<bool, Malformed> {
    Ok(intent.metadata(SESSION)?.is_some() && intent.metadata(OFF_SESSION)? == Some("1"))
}

/// A `payment_intent` in the state that it has itself.
pub(super) fn intent(intent: Fields<'_>) -> Result<PaymentReport, Malformed> {
    let off_session = is_off_session(intent)?;
    let state = match intent.text("status")? {
        Some("succeeded") => PaymentState::Paid,
        Some("processing" | "requires_capture") => PaymentState::Processing,
        Some("canceled") => PaymentState::Failed,
        // Nobody is there to answer, so what asks for the customer has failed.
        Some("requires_action" | "requires_payment_method") if off_session => PaymentState::Failed,
        Some("requires_action" | "requires_payment_method" | "requires_confirmation") => PaymentState::Open,
        None => return Err(missing("status")),
        Some(_) => return Err(unheard_of("status")),
    };
    payment(intent, state)
}

/// A `payment_intent` in a state that something else tells.
pub(super) fn payment(intent: Fields<'_>, state: PaymentState) -> Result<PaymentReport, Malformed> {
    let (mut amount_cents, currency) = intent.money("amount")?;
    if state == PaymentState::Paid
        && let Some(received) = intent.integer("amount_received")?
    {
        amount_cents = received;
    }
    let failed = state == PaymentState::Failed;
    let failure = failure(intent)?.filter(|_| failed).or_else(|| {
        (failed && intent.present("next_action").is_some()).then(|| {
            let words = "the bank asks for the customer";
            ("authentication_required".to_owned(), words.to_owned())
        })
    });
    Ok(PaymentReport {
        session: None,
        reference: intent.metadata(SESSION)?.map(str::to_owned),
        state,
        payment: Some(intent.needed_text("id")?.to_owned()),
        amount_cents,
        currency,
        customer: intent.reference("customer")?.map(str::to_owned),
        method: saved_method(intent)?,
        failure,
    })
}

/// The method of an intent, when it may be charged again.
fn saved_method(intent: Fields<'_>) -> Result<Option<String>, Malformed> {
    let saved = intent.text("setup_future_usage")? == Some("off_session") || is_off_session(intent)?;
    let method = intent.reference("payment_method")?;
    Ok(method.filter(|_| saved).map(str::to_owned))
}

/// Code and words of an intent's last failure.
fn failure(intent: Fields<'_>) -> Result<Option<(String, String)>, Malformed> {
    let Some(error) = intent.object("last_payment_error")? else {
        return Ok(None);
    };
    let code = match error.text("code")? {
        Some(code) => code,
        None => error.text("type")?.unwrap_or("payment_failed"),
    };
    let message = error.text("message")?.unwrap_or_default();
    Ok(Some((words(code), words(message))))
}

/// The payment that a refund or a dispute is about: the intent, or the charge where there is none. Neither
/// finds a row of ours when the payment was not ours.
fn payment_of(object: Fields<'_>) -> Result<String, Malformed> {
    let id = match object.reference("payment_intent")? {
        Some(intent) => Some(intent),
        None => object.reference("charge")?,
    };
    Ok(id.unwrap_or_default().to_owned())
}

/// A `refund`.
pub(super) fn refund(refund: Fields<'_>) -> Result<RefundReport, Malformed> {
    let (amount_cents, currency) = refund.money("amount")?;
    let state = match refund.text("status")? {
        Some("succeeded") => RefundState::Succeeded,
        Some("pending" | "requires_action") | None => RefundState::Pending,
        Some("failed") => RefundState::Failed,
        Some("canceled") => RefundState::Canceled,
        Some(_) => return Err(unheard_of("status")),
    };
    Ok(RefundReport {
        refund: refund.needed_text("id")?.to_owned(),
        reference: refund.metadata(REFUND)?.map(str::to_owned),
        payment: payment_of(refund)?,
        amount_cents,
        currency,
        state,
        failure: refund.text("failure_reason")?.map(words),
    })
}

/// A `dispute`.
pub(super) fn dispute(dispute: Fields<'_>) -> Result<DisputeReport, Malformed> {
    let (amount_cents, currency) = dispute.money("amount")?;
    let state = match dispute.needed_text("status")? {
        "warning_needs_response" | "warning_under_review" => DisputeState::Warning,
        "needs_response" | "under_review" => DisputeState::Open,
        // An inquiry that ended, a charge that was given back instead, a dispute that was averted: in all of
        // them nothing is taken by the dispute.
        "won" | "warning_closed" | "charge_refunded" | "prevented" => DisputeState::Won,
        "lost" => DisputeState::Lost,
        _ => return Err(unheard_of("status")),
    };
    let due_by = match dispute.object("evidence_details")? {
        Some(details) => details.integer("due_by")?,
        None => None,
    };
    Ok(DisputeReport {
        dispute: dispute.needed_text("id")?.to_owned(),
        payment: payment_of(dispute)?,
        amount_cents,
        currency,
        state,
        reason: words(dispute.text("reason")?.unwrap_or_default()),
        due_by,
    })
}
