//! The second factor: codes by time (RFC 6238), and recovery codes for who has lost the device.
//!
//! A secret is kept sealed for its person; a recovery code only as a keyed hash. That a step or a code is taken once
//! is up to the store.

use std::fmt;

use totp_rs::{Algorithm, Builder, Totp};
use turnpike_core::access::KeyPepper;
use turnpike_core::time::Timestamp;
use zeroize::Zeroizing;

use crate::error::AppError;
use crate::sealing::{SealError, Sealer, nonce};

/// Bytes of a secret: as long as what it is hashed to (RFC 4226, section 4).
const SECRET_BYTES: usize = 20;
/// Seconds of a step.
const STEP_SECS: u64 = 30;
/// Steps by which a clock may be off.
const SKEW: u16 = 1;
/// Digits of a code.
const DIGITS: u8 = 6;
/// How authenticator apps name the service.
const ISSUER: &str = "Turnpike";
/// Recovery codes of a person.
pub(super) const RECOVERY_CODES: usize = 10;
/// Characters of a recovery code, five bits each.
const RECOVERY_CHARS: usize = 16;
/// Without letters that look like others (Crockford's base 32).
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// What a person has to put into an authenticator app.
#[derive(Clone)]
pub struct AuthenticatorSecret {
    /// As text, in groups of four.
    pub text: String,
    /// As an `otpauth` address, for a QR code.
    pub url: String,
}

impl fmt::Debug for AuthenticatorSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// What somebody typed as the second factor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// Six digits.
    Code(String),
    /// A recovery code.
    Recovery(String),
    /// Neither.
    Nothing,
}

impl Typed {
    /// Reads what was typed: spaces, dashes and capitals do not count.
    pub(super) fn read(text: &str) -> Self {
        if text.chars().count() > 64 {
            return Self::Nothing;
        }
        let plain: String = text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
        if plain.len() == usize::from(DIGITS) && plain.bytes().all(|byte| byte.is_ascii_digit()) {
            return Self::Code(plain);
        }
        let plain: String = plain.to_lowercase().chars().map(unmistaken).collect();
        if plain.len() == RECOVERY_CHARS && plain.bytes().all(|byte| ALPHABET.contains(&byte)) {
            return Self::Recovery(plain);
        }
        Self::Nothing
    }
}

/// A letter that no code has, as the one it looks like.
fn unmistaken(c: char) -> char {
    match c {
        'i' | 'l' => '1',
        'o' => '0',
        other => other,
    }
}

/// A fresh secret out of random bytes.
pub(super) fn draw(random: &[u8; 32]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(random.iter().copied().take(SECRET_BYTES).collect())
}

fn totp(secret: &[u8], login: &str) -> Result<Totp, AppError> {
    Builder::new()
        .with_algorithm(Algorithm::SHA1)
        .with_digits(DIGITS)
        .with_skew(SKEW)
        .with_step_duration(STEP_SECS)
        .with_secret(secret)
        .with_account_name(login)
        .with_issuer(Some(ISSUER))
        .build()
        .map_err(|error| AppError::internal(&error))
}

/// A secret as it is shown to its person.
pub(super) fn shown(secret: &[u8], login: &str) -> Result<AuthenticatorSecret, AppError> {
    let totp = totp(secret, login)?;
    let text = totp.secret().to_base32();
    let groups: Vec<&str> = text
        .as_bytes()
        .chunks(4)
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    Ok(AuthenticatorSecret {
        text: groups.join(" "),
        url: totp.to_url().map_err(|error| AppError::internal(&error))?,
    })
}

/// The step that `code` belongs to, when it is one that counts at `now`.
pub(super) fn step_of(secret: &[u8], code: &str, now: Timestamp) -> Result<Option<i64>, AppError> {
    let seconds = u64::try_from(now.millis().div_euclid(1000)).unwrap_or_default();
    let step = totp(secret, "")?.check(code, seconds);
    Ok(step.and_then(|step| i64::try_from(step).ok()))
}

/// Seals what is kept of people.
pub(super) struct Keeper {
    sealer: Sealer,
    pepper: KeyPepper,
}

impl Keeper {
    /// One that seals and hashes under keys made of `pepper`.
    pub(super) fn new(pepper: &KeyPepper) -> Result<Self, SealError> {
        Ok(Self {
            sealer: Sealer::new(&pepper.derive("second factors"), b"turnpike second factor")?,
            pepper: pepper.clone(),
        })
    }

    /// Seals a secret for `subject`.
    pub(super) fn seal(&self, subject: &str, secret: &[u8], random: &[u8; 32]) -> Result<Vec<u8>, SealError> {
        self.sealer.seal(subject.as_bytes(), secret, &nonce(random))
    }

    /// The secret that was sealed for `subject`.
    pub(super) fn open(&self, subject: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        self.sealer.open(subject.as_bytes(), sealed)
    }

    /// What is kept of a recovery code of `subject`.
    pub(super) fn recovery_hash(&self, subject: &str, plain: &str) -> [u8; 32] {
        self.pepper.derive(&format!("recovery code {subject} {plain}"))
    }
}

/// A fresh recovery code out of random bytes, as it is hashed and as it is shown.
pub(super) fn recovery_code(random: &[u8; 32]) -> (String, String) {
    let plain: String = random
        .iter()
        .take(RECOVERY_CHARS)
        .map(|byte| char::from(ALPHABET.get(usize::from(byte & 31)).copied().unwrap_or(b'0')))
        .collect();
    let groups: Vec<&str> = plain
        .as_bytes()
        .chunks(4)
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    let shown = groups.join("-");
    (plain, shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 6238, appendix B: SHA-1, the last six of eight digits.
    #[test]
    fn codes_are_those_of_the_standard() {
        let secret = b"12345678901234567890";
        for (seconds, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (20_000_000_000, "353130"),
        ] {
            let at = |shift: i64| Timestamp::from_millis((seconds + shift) * 1000 + 999);
            let step = seconds.div_euclid(30);
            for shift in [-30, 0, 30] {
                assert_eq!(
                    step_of(secret, code, at(shift)).unwrap(),
                    Some(step),
                    "{seconds} {shift}"
                );
            }
            assert_eq!(step_of(secret, code, at(61)).unwrap(), None);
            assert_eq!(step_of(secret, "000000", at(0)).unwrap(), None);
        }
    }

    #[test]
    fn a_secret_is_shown_as_text_and_as_an_address() {
        let shown = shown(b"12345678901234567890", "ada@example.com").unwrap();
        assert_eq!(shown.text, "GEZD GNBV GY3T QOJQ GEZD GNBV GY3T QOJQ");
        assert!(
            shown
                .url
                .starts_with("otpauth://totp/Turnpike:ada%40example.com?"),
            "{}",
            shown.url
        );
        assert!(
            shown.url.contains("secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"),
            "{}",
            shown.url
        );
    }

    #[test]
    fn a_code_is_read_however_it_is_typed() {
        assert_eq!(Typed::read(" 123 456 "), Typed::Code("123456".to_owned()));
        let (plain, shown) = recovery_code(&[0xA7; 32]);
        assert_eq!(shown.len(), 19);
        for typed in [&*shown, &shown.to_uppercase(), &plain] {
            assert_eq!(Typed::read(typed), Typed::Recovery(plain.clone()));
        }
        assert_eq!(
            Typed::read("oil0-0000-0000-0000"),
            Typed::Recovery("0110000000000000".to_owned())
        );
        for nothing in [
            "",
            "12345",
            "1234567",
            "uuuu-uuuu-uuuu-uuuu",
            "١٢٣٤٥٦",
            &"1".repeat(5000),
        ] {
            assert_eq!(Typed::read(nothing), Typed::Nothing, "{nothing}");
        }
    }

    #[test]
    fn a_secret_opens_for_its_person_alone() {
        let keeper = Keeper::new(&KeyPepper::new(b"x")).unwrap();
        let sealed = keeper.seal("ada", b"secret", &[1; 32]).unwrap();
        assert_eq!(*keeper.open("ada", &sealed).unwrap(), b"secret");
        assert!(keeper.open("bob", &sealed).is_err());
        assert_ne!(keeper.recovery_hash("ada", "x"), keeper.recovery_hash("bob", "x"));
    }
}
