//! Quotes: what one call of a tool costs, said before it is made and kept for a few minutes.
//!
//! ```text
//! Open ──▶ Consumed      by the hold of the one call that it pays for; open again when nothing was sent
//!   ├────▶ Canceled      withdrawn, or its end user was retired
//!   └────▶ Expired       by its time alone: no command is needed
//! ```
//! A quote stands for exact arguments, and a call that uses it never costs more than it says.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::account::{Payer, coded_enum};
use super::command::NewHold;
use crate::ids::{CallId, ExternalUserId, QuoteId};
use crate::money::Micros;
use crate::pricing::Charge;
use crate::time::Timestamp;

coded_enum! {
    /// What a quote says.
    QuoteKind {
        /// What the call costs.
        Exact = 0 "exact",
        /// What it costs at most: the provider says the price with the call.
        Ceiling = 1 "ceiling",
    }
}

coded_enum! {
    /// Where a quote stands.
    QuoteState {
        /// It can be used.
        Open = 0 "open",
        /// It was used.
        Consumed = 1 "consumed",
        /// It was withdrawn.
        Canceled = 2 "canceled",
        /// Its time is over.
        Expired = 3 "expired",
    }
}

/// A price before the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Quote {
    /// Its id.
    pub id: QuoteId,
    /// The end user whose balance pays; `None` = the pool.
    pub owner: Option<ExternalUserId>,
    /// The tool, `provider/endpoint`.
    pub slug: Arc<str>,
    /// The tool's definition that was quoted.
    pub revision: Arc<str>,
    /// SHA-256 of the arguments' canonical form, hexadecimal.
    pub args_hash: Arc<str>,
    /// What it says.
    pub kind: QuoteKind,
    /// The price, frozen.
    pub charge: Charge,
    /// The most that the caller wants to pay.
    pub max_charge: Option<Micros>,
    /// SHA-256 of the token that uses it, hexadecimal.
    pub token_hash: Arc<str>,
    /// The idempotency key that was suggested for the call.
    pub idempotency_key: Arc<str>,
    /// Whether the call needs an approval, by the policy at the time of the quote.
    pub needs_approval: bool,
    /// Where it stands, but for its time.
    pub state: QuoteState,
    /// The call that used it.
    pub call: Option<CallId>,
    /// Who asked.
    pub credential: Arc<str>,
    /// When.
    pub created_at: Timestamp,
    /// From then on it cannot be used.
    pub expires_at: Timestamp,
    /// When it was used or withdrawn.
    pub ended_at: Option<Timestamp>,
}

/// What a quote is found by: stored beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuoteIndex<'a> {
    /// [`QuoteState::code`].
    pub state: i16,
    /// The end user, empty for the pool.
    pub owner: &'a str,
    /// From then on it cannot be used.
    pub expires_at: Timestamp,
}

/// Why a quote does not fit a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuoteRefusal {
    /// There is none of that id and token.
    #[error("there is no such quote")]
    Unknown,
    /// It is for another balance.
    #[error("the quote is another payer's")]
    OtherPayer,
    /// It is for another tool or other arguments.
    #[error("the quote is for another call")]
    OtherCall,
    /// It was used or withdrawn, or its time is over.
    #[error("the quote is {0}")]
    Ended(QuoteState),
    /// The tool is not what it was.
    #[error("the tool was changed since the quote")]
    ToolChanged,
    /// The price is above what was quoted, or above what the caller wants to pay.
    #[error("the price is {now}, above the quoted {quoted}")]
    PriceMoved {
        /// The most that the quote allows.
        quoted: Micros,
        /// What the call would hold.
        now: Micros,
    },
}

/// The quote that a call is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuoteUse {
    /// Which.
    pub id: QuoteId,
    /// SHA-256 of the token that was sent, hexadecimal.
    pub token_hash: Arc<str>,
    /// The tool's definition now.
    pub revision: Arc<str>,
}

/// A call as quotes and approvals know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotedCall<'a> {
    /// Whose balance pays.
    pub payer: &'a Payer,
    /// The tool.
    pub slug: &'a str,
    /// SHA-256 of the arguments' canonical form, hexadecimal.
    pub args_hash: &'a str,
}

impl Quote {
    /// What it is found by.
    pub fn index(&self) -> QuoteIndex<'_> {
        QuoteIndex {
            state: self.state.code(),
            owner: self.owner.as_ref().map_or("", ExternalUserId::as_str),
            expires_at: self.expires_at,
        }
    }

    /// Where it stands at `at`.
    pub fn state_at(&self, at: Timestamp) -> QuoteState {
        if self.state == QuoteState::Open && at >= self.expires_at {
            QuoteState::Expired
        } else {
            self.state
        }
    }

    /// The most that its call may hold.
    pub fn most(&self) -> Micros {
        let quoted = self.charge.effective;
        self.max_charge.map_or(quoted, |max| max.min(quoted))
    }

    /// Whether it is for `call` at `at`; the price aside.
    ///
    /// # Errors
    /// What does not fit, the most telling first.
    pub fn check(&self, used: &QuoteUse, call: QuotedCall<'_>, at: Timestamp) -> Result<(), QuoteRefusal> {
        if self.token_hash != used.token_hash {
            return Err(QuoteRefusal::Unknown);
        }
        if self.owner.as_ref() != call.payer.external_user_id() {
            return Err(QuoteRefusal::OtherPayer);
        }
        if *self.slug != *call.slug || *self.args_hash != *call.args_hash {
            return Err(QuoteRefusal::OtherCall);
        }
        match self.state_at(at) {
            QuoteState::Open => {}
            ended @ (QuoteState::Consumed | QuoteState::Canceled | QuoteState::Expired) => {
                return Err(QuoteRefusal::Ended(ended));
            }
        }
        if self.revision != used.revision {
            return Err(QuoteRefusal::ToolChanged);
        }
        Ok(())
    }

    /// Whether a call that holds `amount` keeps within it.
    ///
    /// # Errors
    /// [`QuoteRefusal::PriceMoved`].
    pub fn admit(&self, amount: Micros) -> Result<(), QuoteRefusal> {
        let quoted = self.most();
        if amount > quoted {
            return Err(QuoteRefusal::PriceMoved { quoted, now: amount });
        }
        Ok(())
    }
}

/// A quote is withdrawn.
#[derive(Clone, Debug)]
pub struct CancelQuote {
    /// Which.
    pub id: QuoteId,
    /// Who withdraws it: the pool's callers may withdraw all, an end user only their own.
    pub by: Payer,
}

/// What a call rests on beside the balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAuthority {
    /// SHA-256 of the arguments' canonical form, hexadecimal.
    pub args_hash: Arc<str>,
    /// The quote that it uses.
    pub quote: Option<QuoteUse>,
    /// The approval that it uses, where it needs one.
    pub approval: Option<crate::ids::ApprovalId>,
}

impl NewHold {
    /// The call as quotes and approvals know it; `slug` is [`super::CallSubject::slug`].
    pub(super) fn quoted<'a>(&'a self, authority: &'a CallAuthority, slug: &'a str) -> QuotedCall<'a> {
        QuotedCall {
            payer: &self.payer,
            slug,
            args_hash: &authority.args_hash,
        }
    }
}
