//! What contracts say of an authorisation.

use turnpike_core::x402::evm::PERMIT2;
use turnpike_core::x402::{Authorization, Scheme};

use super::rpc::{Block, Rpc, RpcError};
use crate::payments::eip712::{Word, address_word, keccak};

/// Where a nonce stands in Permit2's map: the word's number, and the bit in it.
pub(super) fn place_of(nonce: &Word) -> (Word, u8) {
    let mut number = [0; 32];
    let (bit, high) = nonce
        .split_last()
        .map_or((0, &[][..]), |(bit, high)| (*bit, high));
    if let Some((_, low)) = number.split_first_mut() {
        low.copy_from_slice(high);
    }
    (number, bit)
}

pub(super) fn bit_is_set(word: &Word, bit: u8) -> bool {
    let byte = word.iter().rev().nth(usize::from(bit / 8)).copied();
    byte.unwrap_or_default() & (1 << (bit % 8)) != 0
}

/// What a call of `function` begins with.
pub(super) fn selector(function: &str) -> [u8; 4] {
    let [a, b, c, d, ..] = keccak(&[function.as_bytes()]);
    [a, b, c, d]
}

pub(super) fn call_data(function: &str, words: &[&Word]) -> Vec<u8> {
    let mut data = selector(function).to_vec();
    data.extend(words.iter().copied().flatten());
    data
}

/// Whether it was used up, after `block`.
pub(super) async fn is_used(
    rpc: &Rpc,
    authorization: &Authorization,
    block: Block,
) -> Result<bool, RpcError> {
    let payer = address_word(authorization.payer);
    let nonce = &authorization.nonce;
    let (contract, data, bit) = match authorization.scheme {
        Scheme::Exact => {
            let data = call_data("authorizationState(address,bytes32)", &[&payer, nonce]);
            (authorization.token, data, 0)
        }
        Scheme::Upto => {
            let (word, bit) = place_of(nonce);
            let data = call_data("nonceBitmap(address,uint256)", &[&payer, &word]);
            (PERMIT2, data, bit)
        }
    };
    let answer = rpc.view(contract, &data, block).await?;
    Ok(bit_is_set(&answer, bit))
}
