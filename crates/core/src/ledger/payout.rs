//! Payouts: the margin that a workspace earned, sent to where it wants it.
//!
//! ```text
//! Pending ──▶ InTransit ──▶ Paid
//!    │ └──────────┴──────▶ Failed ◀─(reversed)─ Paid
//!    └──▶ Canceled
//! ```
//! A payout takes its amount out of `margin` when it is opened, and keeps the destination that it was opened with.
//! Failed and canceled ones have given it back. Where a workspace is paid out to is one row, so that opening a payout
//! and taking its destination away are decided one after the other.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::account::{Balance, coded_enum};
use super::command::NewClaim;
use crate::ids::PayoutId;
use crate::money::Micros;
use crate::time::Timestamp;

coded_enum! {
    /// Where a payout stands.
    PayoutState {
        /// Opened: nobody is known to have sent it.
        Pending = 0 "pending",
        /// Being sent: it cannot be canceled any more.
        InTransit = 1 "in_transit",
        /// Sent for good.
        Paid = 2 "paid",
        /// It did not arrive; the margin is back.
        Failed = 3 "failed",
        /// Withdrawn before it was sent; the margin is back.
        Canceled = 4 "canceled",
    }
}

impl PayoutState {
    /// Whether it is under way.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::InTransit)
    }

    /// Whether the margin has it back.
    pub const fn is_returned(self) -> bool {
        matches!(self, Self::Failed | Self::Canceled)
    }
}

coded_enum! {
    /// How a workspace is paid out.
    PayoutMethod {
        /// By the operator, to an address on a chain.
        Stablecoin = 0 "stablecoin",
        /// By the payment processor, to an account at it.
        Processor = 1 "processor",
    }
}

/// An address on a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StablecoinAddress {
    /// The address, as its network writes it.
    pub address: Arc<str>,
    /// The network, as CAIP-2 names it.
    pub network: Arc<str>,
}

/// Where one payout goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "snake_case")]
pub enum Destination {
    /// An address on a chain.
    Stablecoin(StablecoinAddress),
    /// An account at a processor.
    Processor {
        /// Which processor.
        processor: Arc<str>,
        /// Its id of the account.
        account: Arc<str>,
    },
}

impl Destination {
    /// How it gets there.
    pub const fn method(&self) -> PayoutMethod {
        match self {
            Self::Stablecoin(_) => PayoutMethod::Stablecoin,
            Self::Processor { .. } => PayoutMethod::Processor,
        }
    }
}

/// Margin on its way to the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Payout {
    /// Its id; at the processor it is the attempt's key.
    pub id: PayoutId,
    /// How much.
    pub amount: Micros,
    /// Where to.
    pub destination: Destination,
    /// Where it stands.
    pub state: PayoutState,
    /// What it is called there: the processor's transfer, the chain's transaction.
    pub reference: Option<Arc<str>>,
    /// Why it failed.
    pub failure: Option<Arc<str>>,
    /// Who asked for it.
    pub credential: Arc<str>,
    /// When.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// What a payout is found and summed up by: stored beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayoutIndex<'a> {
    /// [`PayoutState::code`].
    pub state: i16,
    /// How much.
    pub amount: Micros,
    /// What it is called where it went.
    pub reference: Option<&'a str>,
}

impl Payout {
    /// What it is found and summed up by.
    pub fn index(&self) -> PayoutIndex<'_> {
        PayoutIndex {
            state: self.state.code(),
            amount: self.amount,
            reference: self.reference.as_deref(),
        }
    }
}

/// An account at the processor that is paid out to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    /// Which processor.
    pub processor: Arc<str>,
    /// Its id of the account.
    pub account: Arc<str>,
    /// Whether its owner has told the processor everything.
    pub details_submitted: bool,
    /// Whether it can be paid out to.
    pub payable: bool,
    /// Why the processor has stopped it, in the processor's word.
    pub disabled_reason: Option<Arc<str>>,
    /// Since when.
    pub connected_at: Timestamp,
}

/// Where a workspace is paid out to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PayoutSettings {
    /// The account at the processor.
    pub connection: Option<Connection>,
    /// The address on a chain.
    pub stablecoin: Option<StablecoinAddress>,
    /// Connections that were ended: the account of the next one is made under another key.
    pub ended: u32,
}

impl PayoutSettings {
    /// The connection, if it is one to `processor`.
    pub fn connection_to(&self, processor: Option<&str>) -> Option<&Connection> {
        let connection = self.connection.as_ref();
        connection.filter(|connection| Some(&*connection.processor) == processor)
    }

    /// How payouts are made while the service has `processor`.
    pub fn method(&self, processor: Option<&str>) -> PayoutMethod {
        match self.connection_to(processor) {
            Some(connection) if connection.payable => PayoutMethod::Processor,
            Some(_) | None => PayoutMethod::Stablecoin,
        }
    }

    /// Takes what the processor says of an account, if it is the connected one.
    pub fn learn(&mut self, report: &AccountReport) {
        let connection = self.connection.as_mut();
        if let Some(connection) = connection.filter(|known| known.account == report.account) {
            connection.details_submitted = report.details_submitted;
            connection.payable = report.payable;
            connection.disabled_reason.clone_from(&report.disabled_reason);
        }
    }

    /// Where a payout that is opened now goes.
    pub(super) fn destination(&self, processor: Option<&str>) -> Option<Destination> {
        match self
            .connection_to(processor)
            .filter(|connection| connection.payable)
        {
            Some(connection) => Some(Destination::Processor {
                processor: connection.processor.clone(),
                account: connection.account.clone(),
            }),
            None => self.stablecoin.clone().map(Destination::Stablecoin),
        }
    }
}

/// What can be paid out of the margin: what may be taken back, and what the workspace owes after refunds, stays here.
pub const fn payable(margin: Balance, receivable: Micros) -> Micros {
    let owed = Micros::ZERO.saturating_sub_zero(receivable);
    margin.available().saturating_sub_zero(owed)
}

/// A payout is asked for.
#[derive(Clone, Debug)]
pub struct NewPayout {
    /// Its id.
    pub id: PayoutId,
    /// How much; `None` = all that can be paid out.
    pub amount: Option<Micros>,
    /// The smallest payout.
    pub min: Micros,
    /// The service's processor.
    pub processor: Option<Arc<str>>,
    /// Who asks.
    pub credential: Arc<str>,
    /// Makes a repeat harmless.
    pub claim: Option<NewClaim>,
}

/// What became of a payout.
#[derive(Clone, Debug)]
pub struct PayoutReport {
    /// Which.
    pub payout: PayoutId,
    /// What.
    pub progress: PayoutProgress,
}

/// How far a payout is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PayoutProgress {
    /// Somebody begins to send it.
    Begun,
    /// It was sent; what it is called there.
    Paid(Arc<str>),
    /// It was not sent, for good; why.
    Failed(Arc<str>),
    /// It was sent, and came back; why.
    Reversed(Arc<str>),
}

/// A change of where a workspace is paid out to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PayoutChange {
    /// The address on a chain.
    Stablecoin(StablecoinAddress),
    /// An account was made at the processor. It is connected unless one is already.
    Connect {
        /// Which processor.
        processor: Arc<str>,
        /// Its id of the account.
        account: Arc<str>,
        /// [`PayoutSettings::ended`] when it was made.
        ended: u32,
    },
    /// The processor told of an account.
    Account(AccountReport),
    /// The account at the processor is none of ours any more.
    Disconnect,
}

/// What a processor says of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountReport {
    /// Its id of the account.
    pub account: Arc<str>,
    /// Whether its owner has told the processor everything.
    pub details_submitted: bool,
    /// Whether it can be paid out to.
    pub payable: bool,
    /// Why the processor has stopped it.
    pub disabled_reason: Option<Arc<str>>,
}
