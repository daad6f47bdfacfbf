//! The secrets of an endpoint: the newest signs, and those before it sign beside it until their overlap is over.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use turnpike_core::ids::WebhookEndpointId;
use turnpike_core::time::Timestamp;
use turnpike_upstream::webhook::WebhookSecret;

use crate::error::AppError;
use crate::sealing::{Sealer, nonce};

/// Keeps these secrets apart from everything else that is derived from the service's secret.
const PURPOSE: &[u8] = b"turnpike webhook signing secret v1";
/// Most secrets that sign at once.
const MAX_LIVE: usize = 5;

/// One secret as the store keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sealed {
    sealed: String,
    created_at: i64,
    /// When it stops signing; `None` = it is the newest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    expires_at: Option<i64>,
}

/// Seals, opens and rotates the secrets of endpoints.
pub struct SecretBox {
    sealer: Sealer,
}

impl SecretBox {
    /// A box under `master`, which has at least 32 random bytes.
    ///
    /// # Errors
    /// `INTERNAL`, which a key of 32 bytes does not cause.
    pub fn new(master: &[u8]) -> Result<Self, AppError> {
        let sealer = Sealer::new(master, PURPOSE).map_err(|error| AppError::internal(&error))?;
        Ok(Self { sealer })
    }

    fn seal(
        &self,
        endpoint: WebhookEndpointId,
        secret: &WebhookSecret,
        random: &[u8; 32],
        now: Timestamp,
    ) -> Result<Sealed, AppError> {
        let sealed = self
            .sealer
            .seal(&thing(endpoint, now.millis()), secret.expose(), &nonce(random))
            .map_err(|error| AppError::internal(&error))?;
        Ok(Sealed {
            sealed: STANDARD.encode(sealed),
            created_at: now.millis(),
            expires_at: None,
        })
    }

    /// The row of an endpoint's first secret.
    pub(super) fn first(
        &self,
        endpoint: WebhookEndpointId,
        secret: &WebhookSecret,
        random: &[u8; 32],
        now: Timestamp,
    ) -> Result<String, AppError> {
        write(&[self.seal(endpoint, secret, random, now)?])
    }

    /// The row with a new secret, beside which the others sign for `overlap_ms` more; `None` = too many still do.
    pub(super) fn rotated(
        &self,
        endpoint: WebhookEndpointId,
        row: &str,
        secret: &WebhookSecret,
        random: &[u8; 32],
        now: Timestamp,
        overlap_ms: i64,
    ) -> Result<Option<String>, AppError> {
        let end = now.plus_millis(overlap_ms).millis();
        let mut all = vec![self.seal(endpoint, secret, random, now)?];
        for mut old in read(row)? {
            let expires_at = old.expires_at.map_or(end, |at| at.min(end));
            old.expires_at = Some(expires_at);
            if expires_at > now.millis() {
                all.push(old);
            }
        }
        if all.len() > MAX_LIVE {
            return Ok(None);
        }
        write(&all).map(Some)
    }

    /// The secrets that sign now, newest first. One that was sealed under another secret of the service is left out.
    pub(super) fn live(
        &self,
        endpoint: WebhookEndpointId,
        row: &str,
        now: Timestamp,
    ) -> Result<Vec<WebhookSecret>, AppError> {
        let mut live = Vec::new();
        for sealed in read(row)? {
            if sealed.expires_at.is_some_and(|at| at <= now.millis()) {
                continue;
            }
            if let Some(secret) = self.open(endpoint, &sealed) {
                live.push(secret);
            } else {
                tracing::warn!(%endpoint, "a webhook secret cannot be opened: rotate it");
            }
        }
        Ok(live)
    }

    fn open(&self, endpoint: WebhookEndpointId, sealed: &Sealed) -> Option<WebhookSecret> {
        let bytes = STANDARD.decode(&sealed.sealed).ok()?;
        let opened = self
            .sealer
            .open(&thing(endpoint, sealed.created_at), &bytes)
            .ok()?;
        Some(WebhookSecret::new(opened.as_slice().try_into().ok()?))
    }
}

/// When the last of the superseded secrets stops signing.
pub(super) fn overlap_ends(row: &str, now: Timestamp) -> Option<Timestamp> {
    let ends = read(row).ok()?.into_iter().filter_map(|sealed| sealed.expires_at);
    ends.max()
        .filter(|at| *at > now.millis())
        .map(Timestamp::from_millis)
}

/// What a sealed secret is bound to.
fn thing(endpoint: WebhookEndpointId, created_at: i64) -> Vec<u8> {
    let mut thing = created_at.to_be_bytes().to_vec();
    thing.extend_from_slice(endpoint.0.as_bytes());
    thing
}

fn read(row: &str) -> Result<Vec<Sealed>, AppError> {
    serde_json::from_str(row).map_err(|error| AppError::internal(&error))
}

fn write(secrets: &[Sealed]) -> Result<String, AppError> {
    serde_json::to_string(secrets).map_err(|error| AppError::internal(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);
    const DAY: i64 = 86_400_000;

    #[test]
    fn rotation_overlaps_and_ends() {
        let secrets = SecretBox::new(&[1; 32]).unwrap();
        let endpoint = WebhookEndpointId(Uuid::from_u128(1));
        let secret = |byte| WebhookSecret::new([byte; 32]);
        let first = secrets.first(endpoint, &secret(1), &[9; 32], NOW).unwrap();
        let bytes = |row: &str, now| -> Vec<u8> {
            let live = secrets.live(endpoint, row, now).unwrap();
            live.iter().map(|secret| secret.expose()[0]).collect()
        };
        assert_eq!(bytes(&first, NOW), [1]);
        let second = secrets
            .rotated(endpoint, &first, &secret(2), &[8; 32], NOW, DAY)
            .unwrap()
            .unwrap();
        assert_eq!(bytes(&second, NOW), [2, 1]);
        assert_eq!(overlap_ends(&second, NOW), Some(NOW.plus_millis(DAY)));
        // A second rotation without overlap ends both.
        let third = secrets
            .rotated(endpoint, &second, &secret(3), &[7; 32], NOW, 0)
            .unwrap()
            .unwrap();
        assert_eq!(bytes(&third, NOW), [3]);
        // A later one does not lengthen an overlap that runs.
        let later = NOW.plus_millis(DAY / 2);
        let fourth = secrets
            .rotated(endpoint, &second, &secret(4), &[6; 32], later, DAY)
            .unwrap()
            .unwrap();
        assert_eq!(bytes(&fourth, later), [4, 2, 1]);
        assert_eq!(bytes(&fourth, NOW.plus_millis(DAY)), [4, 2]);
        assert!(!fourth.contains(&STANDARD.encode([1; 32])));
        let mut row = first;
        for byte in 2..=5 {
            row = secrets
                .rotated(endpoint, &row, &secret(byte), &[5; 32], NOW, DAY)
                .unwrap()
                .unwrap();
        }
        assert!(
            secrets
                .rotated(endpoint, &row, &secret(6), &[5; 32], NOW, DAY)
                .unwrap()
                .is_none()
        );
        // Another endpoint's row opens for nobody else.
        let other = WebhookEndpointId(Uuid::from_u128(2));
        assert!(secrets.live(other, &row, NOW).unwrap().is_empty());
    }
}
