//! Signing secrets: 32 random bytes, shown as `whsec_` + base64.
//!
//! The rule: a secret prints itself nowhere and is overwritten when it is dropped; [`WebhookSecret::reveal`]
//! is for the one answer that shows it, [`WebhookSecret::expose`] for sealing it at rest. Drawing the bytes is
//! the caller's business.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

const PREFIX: &str = "whsec_";
const BYTES: usize = 32;

/// The text is no signing secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a webhook signing secret")]
pub struct WebhookSecretError;

/// A key that messages to one endpoint are signed with.
#[derive(Clone)]
pub struct WebhookSecret(Zeroizing<[u8; BYTES]>);

impl WebhookSecret {
    /// A secret of 32 random bytes.
    pub fn new(random: [u8; BYTES]) -> Self {
        Self(Zeroizing::new(random))
    }

    /// Reads the form that [`Self::reveal`] shows.
    ///
    /// # Errors
    /// [`WebhookSecretError`] for anything else.
    pub fn parse(text: &str) -> Result<Self, WebhookSecretError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(WebhookSecretError)?;
        let decoded = Zeroizing::new(
            STANDARD
                .decode(encoded)
                .map_err(|_no_base64| WebhookSecretError)?,
        );
        let bytes = <[u8; BYTES]>::try_from(decoded.as_slice()).map_err(|_length| WebhookSecretError)?;
        Ok(Self::new(bytes))
    }

    /// `whsec_…`, as its owner is shown it once.
    pub fn reveal(&self) -> Zeroizing<String> {
        // At its full size from the start: growing would leave copies behind.
        let mut text = Zeroizing::new(String::with_capacity(64));
        text.push_str(PREFIX);
        STANDARD.encode_string(self.0.as_slice(), &mut text);
        text
    }

    /// The bytes themselves, for sealing and signing.
    pub fn expose(&self) -> &[u8; BYTES] {
        &self.0
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_back_as_it_was_shown() {
        let secret = WebhookSecret::new([7; 32]);
        let shown = secret.reveal();
        assert_eq!(
            shown.as_str(),
            "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="
        );
        assert_eq!(WebhookSecret::parse(&shown).unwrap().expose(), &[7; 32]);
    }

    #[test]
    fn anything_else_is_no_secret() {
        let shown = WebhookSecret::new([7; 32]).reveal();
        for text in [
            "",
            "whsec_",
            "whsec_BwcH",
            &shown["whsec_".len()..],
            &shown[..shown.len() - 1],
            &format!("{}AAAA", shown.as_str()),
            &shown.replace('w', "-"),
            &format!(" {}", shown.as_str()),
        ] {
            assert_eq!(
                WebhookSecret::parse(text).err(),
                Some(WebhookSecretError),
                "{text}"
            );
        }
    }

    // Fault matrix 223
    #[test]
    fn a_secret_is_in_no_text() {
        let secret = WebhookSecret::new(*b"canary-canary-canary-canary-7f3a");
        assert_eq!(format!("{secret:?} {secret:#?}"), "[redacted] [redacted]");
    }
}
