//! `upto`: a settlement is found by position, and a nonce that was used otherwise is void only when that is certain.

use serde_json::json;
use turnpike_core::time::Timestamp;
use turnpike_core::x402::evm::{PERMIT2, UPTO_PROXY};
use turnpike_core::x402::{Address, Scheme};

use super::super::state::{bit_is_set, place_of, selector};
use super::super::*;
use super::{
    BEGIN, Chain, FACILITATOR, OTHER, OURS, PAYER, TOKEN, authorization, event, hash, hex_of, paid, reader,
    why,
};
use crate::payments::eip712::{Word, address_word, number_word};
use crate::payments::stand_in::serve;

const INVALIDATED: &str = "UnorderedNonceInvalidation(address,uint256,uint256)";

/// A settlement of this nonce and payer; the rest as our authorisations have it.
fn settle(nonce: Word, owner: Address, amount: u64) -> Vec<u8> {
    let head = "settle(((address,uint256),uint256,uint256),uint256,address,(address,address,uint256),bytes)";
    let mut input = selector(head).to_vec();
    for word in [
        address_word(TOKEN),
        number_word(3000),
        nonce,
        number_word(1_800_020_000),
        number_word(amount),
        address_word(owner),
        address_word(OURS),
        address_word(FACILITATOR),
        number_word(0),
        number_word(320),
        number_word(0),
    ] {
        input.extend(word);
    }
    input
}

fn nonce() -> Word {
    authorization(Scheme::Upto).nonce
}

impl Chain {
    fn sent(mut self, transaction: u8, from: Address, to: Address, input: &[u8]) -> Self {
        let sent = json!({ "hash": hash(transaction), "from": from, "to": to, "input": hex_of(input) });
        self.transactions.insert(hash(transaction), sent);
        self
    }

    /// A payment of another nonce by the same payer at block 1500, and ours at block 4000.
    fn paid() -> Self {
        Self::new(5000)
            .transfer(OURS, 5, 1500, 6)
            .sent(6, FACILITATOR, UPTO_PROXY, &settle([9; 32], PAYER, 5))
            .transfer(OURS, 1234, 4000, 7)
            .sent(7, FACILITATOR, UPTO_PROXY, &settle(nonce(), PAYER, 1234))
            .used_at(4000)
    }

    fn withdrawn(mut self, number: Word, mask: Word, block: u64) -> Self {
        let topics = [event(INVALIDATED), hex_of(&address_word(PAYER))];
        let data = hex_of(&[number, mask].concat());
        self.log(PERMIT2, block, 9, &topics, &data);
        self
    }
}

/// The mask of our nonce's bit.
fn our_mask() -> Word {
    let mut mask = [0; 32];
    mask[28] = 0x80;
    assert!(bit_is_set(&mask, place_of(&nonce()).1));
    mask
}

#[tokio::test]
async fn a_payment_is_found_by_the_proxys_call() {
    let chain = Chain::paid();
    assert_eq!(chain.fate(Scheme::Upto).await, Ok(paid(7, 1234)));
    let twice = chain.clone().transfer(OURS, 1, 4000, 7);
    assert!(why(twice.fate(Scheme::Upto).await).contains("several"));
    for (place, word) in [
        (0, address_word(OTHER)),
        (4, number_word(1235)),
        (6, address_word(OTHER)),
        (7, address_word(OTHER)),
    ] {
        let mut input = settle(nonce(), PAYER, 1234);
        input[4 + 32 * place..][..32].copy_from_slice(&word);
        let differs = chain.clone().sent(7, FACILITATOR, UPTO_PROXY, &input);
        assert!(
            why(differs.fate(Scheme::Upto).await).contains("differ"),
            "{place}"
        );
    }
}

// The payer chooses the nonce, and may choose bytes that stand in every call.
#[tokio::test]
async fn bytes_in_another_place_are_no_payment() {
    let mut calls = vec![settle([9; 32], PAYER, 5), settle(nonce(), OTHER, 5)];
    // Our nonce and payer after the end of another settlement, and as its other words.
    calls.push(
        [
            settle([9; 32], OTHER, 5),
            nonce().to_vec(),
            address_word(PAYER).to_vec(),
        ]
        .concat(),
    );
    let mut moved = settle([9; 32], PAYER, 5);
    moved[4 + 32 * 3..][..32].copy_from_slice(&nonce());
    calls.push(moved);
    for input in calls {
        let chain = Chain::new(20_000)
            .transfer(OURS, 5, 1500, 6)
            .sent(6, FACILITATOR, UPTO_PROXY, &input)
            .used_at(1400);
        assert_eq!(chain.fate(Scheme::Upto).await, Ok(Fate::Void));
    }
}

#[tokio::test]
async fn one_transfer_does_not_stand_for_two_authorisations() {
    for (first, second) in [([0; 32], [7; 32]), ([7; 32], [0; 32]), (number_word(1), [0; 32])] {
        let chain = Chain::new(5000).transfer(OURS, 1234, 4000, 7).sent(
            7,
            FACILITATOR,
            UPTO_PROXY,
            &settle(first, PAYER, 1234),
        );
        let url = serve(move |_, body| {
            // Both nonces are used, of whichever word and bit.
            if body["method"] == "eth_call" {
                let answer = json!({ "id": body["id"], "result": hex_of(&[0xff; 32]) });
                return crate::payments::stand_in::reply(200, &answer.to_string());
            }
            chain.reply(body)
        })
        .await;
        let reader = reader(&url);
        let since = Timestamp::from_millis((BEGIN + 2000) * 1000);
        let mut ours = authorization(Scheme::Upto);
        ours.nonce = first;
        assert_eq!(reader.fate(&ours, since).await, Ok(paid(7, 1234)));
        ours.nonce = second;
        assert!(why(reader.fate(&ours, since).await).contains("neither"));
    }
}

#[tokio::test]
async fn only_the_facilitators_call_of_the_proxy_settles() {
    let input = settle(nonce(), PAYER, 1234);
    let with = |from, to| Chain::paid().sent(7, from, to, &input);
    // Passed over: what others send, and what is sent to the token.
    for chain in [
        with(OTHER, UPTO_PROXY),
        with(OTHER, OTHER),
        with(FACILITATOR, TOKEN),
    ] {
        assert!(why(chain.fate(Scheme::Upto).await).contains("neither"));
        let mut later = chain.clone();
        later.blocks = 20_000;
        assert_eq!(later.fate(Scheme::Upto).await, Ok(Fate::Void));
    }
    // The facilitator through another contract, or through its own account's.
    for chain in [with(FACILITATOR, OTHER), with(OTHER, FACILITATOR)] {
        let mut chain = chain.withdrawn(place_of(&nonce()).0, our_mask(), 4000);
        chain.blocks = 20_000;
        assert!(why(chain.fate(Scheme::Upto).await).contains("not read here"));
    }
    let mut strange = Chain::paid().sent(7, FACILITATOR, UPTO_PROXY, b"\x01\x02\x03\x04");
    strange.blocks = 20_000;
    assert!(why(strange.fate(Scheme::Upto).await).contains("not read here"));
}

// Fault matrix 193
#[tokio::test]
async fn a_withdrawn_nonce_is_void() {
    let number = place_of(&nonce()).0;
    let used = Chain::new(2001).used_at(2000);
    let withdrawn = used.clone().withdrawn(number, our_mask(), 2000);
    assert_eq!(withdrawn.fate(Scheme::Upto).await, Ok(Fate::Void));
    // Of another word, and of all bits but ours.
    let others = our_mask().map(|byte| !byte);
    for chain in [
        used.clone().withdrawn([1; 32], our_mask(), 2000),
        used.clone().withdrawn(number, others, 2000),
    ] {
        assert!(why(chain.fate(Scheme::Upto).await).contains("neither"));
    }
    // It was withdrawn after it was used: that says nothing.
    let late = Chain::new(2001).used_at(1999).withdrawn(number, our_mask(), 2000);
    assert!(why(late.fate(Scheme::Upto).await).contains("neither"));
    let paid_before = Chain::paid().withdrawn(number, our_mask(), 4001);
    assert_eq!(paid_before.fate(Scheme::Upto).await, Ok(paid(7, 1234)));
    // In the same block too.
    let paid_there = Chain::paid().withdrawn(number, our_mask(), 4000);
    assert_eq!(paid_there.fate(Scheme::Upto).await, Ok(paid(7, 1234)));
    // The node does not keep that state.
    let mut forgotten = withdrawn;
    forgotten.kept = 2000;
    assert!(why(forgotten.fate(Scheme::Upto).await).contains("-32000"));
}

// Fault matrix 193
#[tokio::test]
async fn a_use_without_a_payment_is_void_when_it_is_over_and_every_block_was_read() {
    // It is over at block 10016.
    let mut chain = Chain::new(10_015).used_at(2000);
    assert!(why(chain.fate(Scheme::Upto).await).contains("neither"));
    chain.blocks = 10_016;
    assert_eq!(chain.fate(Scheme::Upto).await, Ok(Fate::Void));
    // First seen an hour and 100 blocks after it was used.
    let late = Timestamp::from_millis((BEGIN + 2 * 2100 + 3600) * 1000);
    let serving = chain.clone();
    let ahead = reader(&serve(move |_, body| serving.reply(body)).await);
    let fate = ahead.fate(&authorization(Scheme::Upto), late).await;
    assert!(why(fate).contains("before the first block"));
    chain.used_at = Some(2100);
    let serving = chain.clone();
    let known = reader(&serve(move |_, body| serving.reply(body)).await);
    assert_eq!(
        known.fate(&authorization(Scheme::Upto), late).await,
        Ok(Fate::Void)
    );
    // The state before the first block is gone.
    chain.kept = 2100;
    let gone = reader(&serve(move |_, body| chain.reply(body)).await);
    let fate = gone.fate(&authorization(Scheme::Upto), late).await;
    assert!(why(fate).contains("-32000"));
}
