//! Calls of the proxy that settles `upto`, read by position.
//!
//! The rule: a word counts only where the function has it. Payers choose their nonces, so that the same bytes
//! anywhere else say nothing.

use super::state::selector;
use crate::payments::eip712::Word;

const SETTLE: &str =
    "settle(((address,uint256),uint256,uint256),uint256,address,(address,address,uint256),bytes)";
const SETTLE_WITH_PERMIT: &str = "settleWithPermit((uint256,uint256,bytes32,bytes32,uint8),\
((address,uint256),uint256,uint256),uint256,address,(address,address,uint256),bytes)";
/// The words of the token's own permit, which come first.
const PERMIT_WORDS: usize = 5;

/// A settlement that the proxy was told to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settlement {
    pub(super) token: Word,
    pub(super) nonce: Word,
    pub(super) amount: Word,
    pub(super) owner: Word,
    pub(super) to: Word,
    pub(super) facilitator: Word,
}

/// `None` for every other call.
pub(super) fn settlement(input: &[u8]) -> Option<Settlement> {
    let (function, arguments) = input.split_first_chunk::<4>()?;
    let (words, _rest) = arguments.as_chunks::<32>();
    let words = if *function == selector(SETTLE) {
        words
    } else if *function == selector(SETTLE_WITH_PERMIT) {
        words.get(PERMIT_WORDS..)?
    } else {
        return None;
    };
    let [token, _most, nonce, _deadline, amount, owner, to, facilitator, ..] = words else {
        return None;
    };
    Some(Settlement {
        token: *token,
        nonce: *nonce,
        amount: *amount,
        owner: *owner,
        to: *to,
        facilitator: *facilitator,
    })
}
