//! Signatures of outgoing messages, after Standard Webhooks: `v1,` + base64 of HMAC-SHA256 over
//! `{id}.{timestamp}.{body}`.
//!
//! The rule: what is signed is what is sent, to the byte, and an attempt is signed at its own time. The
//! `standardwebhooks` crate judges this in the tests, as a receiver that shares no code with us. It does not
//! sign here: it wants the body as UTF-8, copies it and the key, and brings a second HMAC and a second base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use sha2::digest::Key;

use super::secret::WebhookSecret;

/// HMAC-SHA256's block; a secret is shorter and padded with zeros.
const BLOCK_BYTES: usize = 64;

/// The `webhook-signature` value: one signature for each secret, in their order.
pub(super) fn signatures(secrets: &[WebhookSecret], id: &str, unix_seconds: i64, body: &[u8]) -> String {
    let mut value = String::with_capacity(secrets.len().saturating_mul(48));
    for secret in secrets {
        if !value.is_empty() {
            value.push(' ');
        }
        value.push_str("v1,");
        STANDARD.encode_string(mac(secret, id, unix_seconds, body), &mut value);
    }
    value
}

fn mac(secret: &WebhookSecret, id: &str, unix_seconds: i64, body: &[u8]) -> [u8; 32] {
    // A whole block cannot have a wrong length.
    let mut block = [0; BLOCK_BYTES];
    for (to, from) in block.iter_mut().zip(secret.expose()) {
        *to = *from;
    }
    let mut hmac = Hmac::<Sha256>::new(&Key::<Hmac<Sha256>>::from(block));
    hmac.update(id.as_bytes());
    hmac.update(b".");
    hmac.update(unix_seconds.to_string().as_bytes());
    hmac.update(b".");
    hmac.update(body);
    hmac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use standardwebhooks::{Webhook, WebhookError};

    use super::*;

    const ID: &str = "0192f0c8-0000-7000-8000-000000000001";
    const BODY: &[u8] = br#"{"type":"credits.topup.completed","data":{"reference":"\u00e9"}}"#;

    #[expect(
        clippy::disallowed_methods,
        reason = "the receiver of the test reads the real clock"
    )]
    fn now() -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        i64::try_from(since.unwrap().as_secs()).unwrap()
    }

    fn secret(byte: u8) -> WebhookSecret {
        WebhookSecret::new([byte; 32])
    }

    /// What an independent receiver with `secret` says.
    fn receive(secret: &WebhookSecret, at: i64, signature: &str, body: &[u8]) -> Result<(), WebhookError> {
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", ID.parse().unwrap());
        headers.insert("webhook-timestamp", at.to_string().parse().unwrap());
        headers.insert("webhook-signature", signature.parse().unwrap());
        Webhook::new(&secret.reveal()).unwrap().verify(body, &headers)
    }

    // Fault matrix 173
    #[test]
    fn an_independent_receiver_accepts_our_signature() {
        let at = now();
        let signature = signatures(&[secret(1)], ID, at, BODY);
        assert!(receive(&secret(1), at, &signature, BODY).is_ok());
        let theirs = Webhook::from_bytes(vec![1; 32]).unwrap();
        assert_eq!(signature, theirs.sign(ID, at, BODY).unwrap());
    }

    // The example of the specification's own libraries.
    #[test]
    fn a_known_message_has_its_known_signature() {
        let key = Webhook::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=").unwrap();
        let ours = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        assert_eq!(
            signatures(&[ours], id, 1_614_265_330, body),
            key.sign(id, 1_614_265_330, body).unwrap()
        );
    }

    // Fault matrix 173
    #[test]
    fn a_changed_byte_an_old_time_and_a_foreign_secret_are_refused() {
        let at = now();
        let signature = signatures(&[secret(1)], ID, at, BODY);
        for index in 0..BODY.len() {
            let mut changed = BODY.to_vec();
            changed[index] ^= 1;
            let verdict = receive(&secret(1), at, &signature, &changed);
            assert!(matches!(verdict, Err(WebhookError::InvalidSignature)), "{index}");
        }
        let verdict = receive(&secret(1), at + 1, &signature, BODY);
        assert!(matches!(verdict, Err(WebhookError::InvalidSignature)));
        let verdict = receive(&secret(2), at, &signature, BODY);
        assert!(matches!(verdict, Err(WebhookError::InvalidSignature)));
        let old = at - 301;
        let verdict = receive(&secret(1), old, &signatures(&[secret(1)], ID, old, BODY), BODY);
        assert!(matches!(verdict, Err(WebhookError::TimestampTooOldError)));
    }

    // Fault matrix 173
    #[test]
    fn either_secret_of_a_rotation_is_accepted_newest_first() {
        let at = now();
        let both = signatures(&[secret(2), secret(1)], ID, at, BODY);
        assert!(receive(&secret(1), at, &both, BODY).is_ok());
        assert!(receive(&secret(2), at, &both, BODY).is_ok());
        assert!(receive(&secret(3), at, &both, BODY).is_err());
        let newest = signatures(&[secret(2)], ID, at, BODY);
        let oldest = signatures(&[secret(1)], ID, at, BODY);
        assert_eq!(both, format!("{newest} {oldest}"));
    }
}
