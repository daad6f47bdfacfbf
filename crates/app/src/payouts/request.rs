//! The bodies of requests about payouts.

use sha3::{Digest as _, Keccak256};
use turnpike_core::ledger::payout::StablecoinAddress;
use turnpike_core::money::Micros;

use crate::error::AppError;
use crate::fields::Fields;

/// Longest name of a network: CAIP-2 allows 8 characters, a colon and 32.
const MAX_NETWORK: usize = 41;
/// Longest address.
const MAX_ADDRESS: usize = 128;
/// The digits of base 58.
const BASE58: &[u8] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// A payout that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayoutRequest {
    /// How much; `None` = all that can be paid out.
    pub amount: Option<Micros>,
}

impl PayoutRequest {
    /// Reads the body; none asks for all there is.
    ///
    /// # Errors
    /// `INVALID_JSON`, `UNKNOWN_FIELD`, `VALIDATION_ERROR`.
    pub fn parse(raw: &[u8]) -> Result<Self, AppError> {
        let mut fields = Fields::parse(raw, &["usd"])?;
        let amount = fields.usd("usd")?;
        if amount.is_some_and(|amount| amount <= Micros::ZERO) {
            return Err(AppError::invalid("usd", "must be more than zero"));
        }
        Ok(Self { amount })
    }
}

/// Where the owner of an account goes from the processor's page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnRequest {
    /// When they are done.
    pub return_url: Option<String>,
    /// When the page is of no use any more.
    pub refresh_url: Option<String>,
}

impl ReturnRequest {
    /// Reads the body, which may be absent.
    ///
    /// # Errors
    /// `INVALID_JSON`, `UNKNOWN_FIELD`, `VALIDATION_ERROR`.
    pub fn parse(raw: &[u8]) -> Result<Self, AppError> {
        let mut fields = Fields::parse(raw, &["returnUrl", "refreshUrl"])?.without_nulls();
        Ok(Self {
            return_url: fields.text("returnUrl")?,
            refresh_url: fields.text("refreshUrl")?,
        })
    }
}

/// Reads an address on a chain. What cannot be an address of its network is refused: money sent there is gone.
///
/// # Errors
/// `INVALID_JSON`, `UNKNOWN_FIELD`, `VALIDATION_ERROR`.
pub fn stablecoin_address(raw: &[u8]) -> Result<StablecoinAddress, AppError> {
    let mut fields = Fields::parse(raw, &["address", "network"])?;
    let network = fields.required("network", |fields, name| fields.words(name, 1..=MAX_NETWORK))?;
    let address = fields.required("address", |fields, name| fields.words(name, 1..=MAX_ADDRESS))?;
    let (fits, shape) = match network.split_once(':') {
        Some(("eip155", chain)) if is_chain_number(chain) => (
            is_evm_address(&address),
            "must be 0x and 40 hexadecimal digits, not all of them zero; in upper and lower case with a right \
             checksum (EIP-55)",
        ),
        Some(("solana", genesis)) if is_base58(genesis, 32..=32) => (
            is_solana_address(&address),
            "must be 32 bytes in base 58, not all of them zero",
        ),
        Some(_) | None => {
            let message = "must be a CAIP-2 name such as eip155:8453, or solana: and its genesis";
            return Err(AppError::invalid("network", message));
        }
    };
    if !fits {
        return Err(AppError::invalid("address", shape));
    }
    Ok(StablecoinAddress {
        address: address.into(),
        network: network.into(),
    })
}

fn is_chain_number(text: &str) -> bool {
    let digits = (1..=19).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits && !text.starts_with('0')
}

/// Whether this is an account on an EVM chain that somebody can have: 0x and 40 digits, with a right checksum if it
/// has one.
pub fn is_evm_address(text: &str) -> bool {
    text.strip_prefix("0x").is_some_and(|digits| {
        digits.len() == 40
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            && digits.bytes().any(|byte| byte != b'0')
            && has_right_case(digits)
    })
}

/// EIP-55: a digit is in upper case where the hash of the address in lower case has 8 or more. An address in one
/// case has no checksum.
fn has_right_case(digits: &str) -> bool {
    let (lower, upper) = (digits.to_ascii_lowercase(), digits.to_ascii_uppercase());
    if digits == lower || digits == upper {
        return true;
    }
    let hash = hex::encode(Keccak256::digest(lower.as_bytes()));
    let right = lower.chars().zip(hash.chars()).map(|(digit, of_hash)| {
        if of_hash >= '8' {
            digit.to_ascii_uppercase()
        } else {
            digit
        }
    });
    digits.chars().eq(right)
}

fn is_solana_address(text: &str) -> bool {
    let mut key = [0_u8; 32];
    bs58::decode(text).onto(&mut key) == Ok(32) && key != [0; 32]
}

fn is_base58(text: &str, length: std::ops::RangeInclusive<usize>) -> bool {
    length.contains(&text.len()) && text.bytes().all(|byte| BASE58.contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(network: &str, address: &str) -> Result<StablecoinAddress, AppError> {
        let body = serde_json::json!({ "network": network, "address": address });
        stablecoin_address(body.to_string().as_bytes())
    }

    #[test]
    fn an_address_fits_its_network() {
        let evm = "0x52908400098527886E0F7030069857D2E4169EE7";
        let solana = "7S3P4HxJpyyigGzodYwHtCxZyUQe9JiBMHyRWXArAaKv";
        let mainnet = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp";
        assert_eq!(&*read("eip155:8453", evm).unwrap().address, evm);
        assert!(read(mainnet, solana).is_ok());
        for written in [
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
            "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed",
            "0x5AAEB6053F3E94C9B9A09F33669435E7EF1BEAED",
        ] {
            assert!(read("eip155:1", written).is_ok(), "{written}");
        }
        for (network, address) in [
            ("base", evm),
            ("eip155:", evm),
            ("eip155:08453", evm),
            ("eip155:x", evm),
            ("bip122:000000000019d6689c085ae165831e93", evm),
            ("eip155:8453", solana),
            (mainnet, evm),
            ("solana:main", solana),
            ("eip155:8453", "0x0000000000000000000000000000000000000000"),
            ("eip155:8453", "52908400098527886E0F7030069857D2E4169EE7"),
            ("eip155:8453", "0x52908400098527886E0F7030069857D2E4169EE"),
            ("eip155:8453", "0x52908400098527886E0F7030069857D2E4169EEg"),
            // One digit, one case, is another than what the checksum is of.
            ("eip155:8453", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAee"),
            ("eip155:8453", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"),
            // 44, 31 and 33 bytes, nothing but zeros, and a character that base 58 has not.
            (mainnet, "11111111111111111111111111111111111111111111"),
            (mainnet, "4uQeVj5tqViQh7yWWGStvkEG1Zmhx6uasJtWCJziofL"),
            (mainnet, "JEKNVnkbo3jma5nREBBJCDoXFVeKkD56V3xKrvRmWxFH"),
            (mainnet, "11111111111111111111111111111111"),
            (mainnet, "0S3P4HxJpyyigGzodYwHtCxZyUQe9JiBMHyRWXArAaKv"),
            ("eip155:8453", "vitalik.eth"),
            ("eip155:8453", ""),
            ("", evm),
        ] {
            let refused = read(network, address).unwrap_err();
            assert_eq!(refused.code.as_str(), "VALIDATION_ERROR", "{network} {address}");
        }
        assert!(stablecoin_address(b"{\"address\":\"x\"}").is_err());
        assert!(stablecoin_address(b"{\"address\":null,\"network\":1}").is_err());
    }

    #[test]
    fn an_amount_is_more_than_zero_or_absent() {
        assert_eq!(PayoutRequest::parse(b"").unwrap().amount, None);
        assert!(PayoutRequest::parse(b"{\"usd\":\"1.000001\"}").is_ok());
        for bad in [
            "{\"usd\":\"0\"}",
            "{\"usd\":1}",
            "{\"usd\":null}",
            "{\"usd\":\"-1\"}",
            "{\"x\":1}",
            "[]",
        ] {
            assert!(PayoutRequest::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
