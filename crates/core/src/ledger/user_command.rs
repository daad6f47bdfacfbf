//! The commands about an end user: tokens, limits, freezing, retirement, and what a move of credits leaves behind.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::account::{Balance, Payer};
use super::policy::Policy;
use super::token::{EndUserToken, TokenKind};
use crate::ids::{ExternalUserId, TokenId, TransferId};
use crate::money::Micros;

/// A token or agent connection to be given out.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Its `jti`, or the connection's id.
    pub id: TokenId,
    /// Its row.
    pub token: EndUserToken,
}

/// Tokens or agent connections that stop working.
#[derive(Clone, Debug)]
pub struct RevokeTokens {
    /// Which of the two.
    pub kind: TokenKind,
    /// Whose balance they spend from.
    pub owner: Payer,
    /// Only this one; `None` = all of them, of an end user.
    pub only: Option<TokenId>,
}

/// An end user's limits, all of them anew.
#[derive(Clone, Debug)]
pub struct NewPolicy {
    /// Whose.
    pub end_user: ExternalUserId,
    /// What they become.
    pub policy: Arc<Policy>,
}

/// A balance to be frozen by hand, or to be free again whatever froze it.
#[derive(Clone, Debug)]
pub struct SetFrozen {
    /// Whose.
    pub payer: Payer,
    /// What it becomes.
    pub frozen: bool,
    /// Why.
    pub reason: Arc<str>,
}

/// An end user leaves for good.
#[derive(Clone, Debug)]
pub struct Retire {
    /// Who.
    pub end_user: ExternalUserId,
}

/// What a move of credits did: the answer to it, and to every repeat of its idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReceipt {
    /// The transfer.
    pub transfer: TransferId,
    /// How much was moved.
    pub amount: Micros,
    /// The pool's balance afterwards.
    pub pool: Balance,
    /// The end user's balance afterwards.
    pub end_user: Balance,
}
