//! Signatures of a processor's events: Stripe's scheme, `t=…,v1=…` with HMAC-SHA256 over `{t}.{body}`.
//!
//! The rule: nothing is done with the body before the header is well-formed and fresh, and signatures are
//! compared in constant time. Any of several secrets and any of several `v1` may match, so that either side
//! can rotate; `v0` is ignored, as Stripe says. What the body means is read elsewhere, afterwards.

use hmac::{Hmac, Mac};
use sha2::digest::Key;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// How far a signature's time may be from ours, in seconds, in both directions.
const TOLERANCE_SECONDS: u64 = 300;
/// Longest signature header that is looked at.
const MAX_HEADER_BYTES: usize = 4096;
/// HMAC-SHA256's block: longer keys are hashed first (RFC 2104).
const BLOCK_BYTES: usize = 64;

/// Why a signature is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is no signature header, or an empty one.
    #[error("the event has no signature")]
    Missing,
    /// The header is not of the form `t=…,v1=…`, too long, or without a `v1`.
    #[error("the event's signature header is malformed")]
    Malformed,
    /// Its time is more than 300 seconds before or after ours.
    #[error("the event's signature is too old or from the future")]
    Stale,
    /// No configured secret made any of its signatures.
    #[error("the event's signature does not match")]
    Mismatch,
}

/// The signature header for `raw` at `timestamp`, Unix seconds.
pub fn sign_event(secret: &str, raw: &[u8], timestamp: i64) -> String {
    let time = timestamp.to_string();
    format!("t={time},v1={}", hex::encode(mac(secret, &time, raw)))
}

/// Checks `header` over the raw bytes of an event. `now` in Unix seconds; empty secrets match nothing.
///
/// # Errors
/// [`SignatureError`]
pub fn verify_event(secrets: &[&str], raw: &[u8], header: &str, now: i64) -> Result<(), SignatureError> {
    let signature = Signature::parse(header)?;
    if now.abs_diff(signature.at) > TOLERANCE_SECONDS {
        return Err(SignatureError::Stale);
    }
    let mut matched = Choice::from(0);
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        let expected = mac(secret, signature.time, raw);
        for candidate in &signature.candidates {
            matched |= candidate.ct_eq(&expected);
        }
    }
    if bool::from(matched) {
        Ok(())
    } else {
        Err(SignatureError::Mismatch)
    }
}

struct Signature<'a> {
    /// As it was signed: the very digits of the header.
    time: &'a str,
    at: i64,
    candidates: Vec<[u8; 32]>,
}

impl<'a> Signature<'a> {
    fn parse(header: &'a str) -> Result<Self, SignatureError> {
        if header.is_empty() {
            return Err(SignatureError::Missing);
        }
        if header.len() > MAX_HEADER_BYTES {
            return Err(SignatureError::Malformed);
        }
        let mut time = None;
        let mut candidates = Vec::new();
        for item in header.split(',') {
            let (name, value) = item.trim().split_once('=').ok_or(SignatureError::Malformed)?;
            match name {
                "t" if time.is_some() => return Err(SignatureError::Malformed),
                "t" => time = Some(value),
                "v1" => {
                    let mut candidate = [0; 32];
                    hex::decode_to_slice(value, &mut candidate)
                        .map_err(|_not_hex| SignatureError::Malformed)?;
                    candidates.push(candidate);
                }
                // Other schemes say nothing.
                _ => {}
            }
        }
        let time = time
            .filter(|time| time.bytes().all(|byte| byte.is_ascii_digit()))
            .ok_or(SignatureError::Malformed)?;
        let at = time.parse().map_err(|_no_time| SignatureError::Malformed)?;
        if candidates.is_empty() {
            return Err(SignatureError::Malformed);
        }
        Ok(Self { time, at, candidates })
    }
}

fn mac(secret: &str, time: &str, raw: &[u8]) -> [u8; 32] {
    let mut hmac = Hmac::<Sha256>::new(&block(secret.as_bytes()));
    hmac.update(time.as_bytes());
    hmac.update(b".");
    hmac.update(raw);
    hmac.finalize().into_bytes().into()
}

/// The key as HMAC pads it: a whole block cannot have a wrong length.
fn block(secret: &[u8]) -> Key<Hmac<Sha256>> {
    let hashed;
    let short: &[u8] = if secret.len() > BLOCK_BYTES {
        hashed = Sha256::digest(secret);
        &hashed
    } else {
        secret
    };
    let mut block = [0; BLOCK_BYTES];
    for (to, from) in block.iter_mut().zip(short) {
        *to = *from;
    }
    block.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_test";
    const RAW: &[u8] = br#"{"id": "evt_1", "a":  1}"#;
    const NOW: i64 = 1_800_000_000;

    fn check(header: &str, now: i64) -> Result<(), SignatureError> {
        verify_event(&[SECRET], RAW, header, now)
    }

    #[test]
    fn the_signature_is_plain_hmac_sha256_whatever_the_length_of_the_key() {
        for secret in ["k", &"k".repeat(64), &"k".repeat(65), &"k".repeat(300)] {
            let mut reference = <Hmac<Sha256> as Mac>::new_from_slice(secret.as_bytes()).unwrap();
            reference.update(b"12.");
            reference.update(RAW);
            let expected = hex::encode(reference.finalize().into_bytes());
            assert_eq!(sign_event(secret, RAW, 12), format!("t=12,v1={expected}"));
        }
    }

    // Fault matrix 107
    #[test]
    fn a_fresh_signature_is_accepted_within_five_minutes_both_ways() {
        let header = sign_event(SECRET, RAW, NOW);
        for (now, expected) in [
            (NOW, Ok(())),
            (NOW + 300, Ok(())),
            (NOW - 300, Ok(())),
            (NOW + 301, Err(SignatureError::Stale)),
            (NOW - 301, Err(SignatureError::Stale)),
            (i64::MIN, Err(SignatureError::Stale)),
            (i64::MAX, Err(SignatureError::Stale)),
        ] {
            assert_eq!(check(&header, now), expected, "{now}");
        }
    }

    // Fault matrix 107
    #[test]
    fn a_wrong_secret_and_a_reserialised_body_do_not_match() {
        assert_eq!(
            check(&sign_event("whsec_other", RAW, NOW), NOW),
            Err(SignatureError::Mismatch)
        );
        let header = sign_event(SECRET, br#"{"id":"evt_1","a":1}"#, NOW);
        assert_eq!(check(&header, NOW), Err(SignatureError::Mismatch));
        let header = sign_event(SECRET, RAW, NOW);
        assert_eq!(
            verify_event(&[], RAW, &header, NOW),
            Err(SignatureError::Mismatch)
        );
    }

    #[test]
    fn the_time_is_part_of_what_is_signed() {
        let header = sign_event(SECRET, RAW, NOW).replace(&NOW.to_string(), &(NOW + 1).to_string());
        assert_eq!(check(&header, NOW), Err(SignatureError::Mismatch));
    }

    #[test]
    fn an_empty_secret_opens_nothing() {
        let header = sign_event("", RAW, NOW);
        assert_eq!(
            verify_event(&[""], RAW, &header, NOW),
            Err(SignatureError::Mismatch)
        );
    }

    // Fault matrix 107
    #[test]
    fn both_sides_can_rotate() {
        let old = sign_event("whsec_old", RAW, NOW);
        let new = sign_event(SECRET, RAW, NOW);
        let (_, new_v1) = new.split_once(',').unwrap();
        let both = format!("{old},{new_v1},v0={}", "00".repeat(32));
        assert_eq!(check(&both, NOW), Ok(()));
        assert_eq!(verify_event(&["whsec_next", SECRET], RAW, &new, NOW), Ok(()));
    }

    // Fault matrix 107
    #[test]
    fn headers_without_a_usable_v1_are_refused() {
        let good = sign_event(SECRET, RAW, NOW);
        let v0 = good.replace("v1=", "v0=");
        let (_, v1) = good.split_once(',').unwrap();
        let long = format!("{good},x={}", "y".repeat(MAX_HEADER_BYTES));
        assert_eq!(check("", NOW), Err(SignatureError::Missing));
        for header in [
            v0.as_str(),
            v1,
            &long,
            "nonsense",
            &format!("t={NOW}"),
            &format!("t={NOW},v1=zz"),
            &format!("t={NOW},v1="),
            &format!("t=+{NOW},{v1}"),
            &format!("t=,{v1}"),
            &format!("t=99999999999999999999,{v1}"),
            &format!("{good},t={NOW}"),
            &format!("{good},"),
        ] {
            assert_eq!(check(header, NOW), Err(SignatureError::Malformed), "{header}");
        }
    }
}
