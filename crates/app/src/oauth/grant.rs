//! What is carried between the steps: the request, sealed, and what was agreed to, in the code's row.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use turnpike_core::access::KeyPepper;
use turnpike_core::ids::TenantId;
use turnpike_core::money::Micros;
use turnpike_core::time::Timestamp;
use uuid::Uuid;

use crate::sealing::{SealError, Sealer, nonce};

/// Longest sealed request that is looked at.
const MAX_REQUEST: usize = 12 * 1024;
const THING: &[u8] = b"request";

/// What a client asks for, checked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) client: String,
    pub(super) client_name: String,
    pub(super) redirect_uri: String,
    pub(super) state: Option<String>,
    pub(super) scope: String,
    pub(super) challenge: String,
    pub(super) ends_at: i64,
}

/// What a member agreed to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Grant {
    pub(super) client: String,
    pub(super) client_name: String,
    pub(super) redirect_uri: String,
    pub(super) scope: String,
    pub(super) challenge: String,
    pub(super) resource: String,
    pub(super) tenant: TenantId,
    /// Who agreed.
    pub(super) subject: String,
    /// From where.
    pub(super) origin: String,
    /// The end user who pays; empty for the pool.
    pub(super) owner: String,
    pub(super) max_spend: Option<Micros>,
    pub(super) max_per_call: Option<Micros>,
    pub(super) lifetime_secs: i64,
    /// The id that the connection will have, so that it can be ended whoever redeems the code.
    pub(super) agent: Uuid,
}

/// Seals and opens requests.
pub(super) struct Requests {
    sealer: Sealer,
}

impl Requests {
    /// Under a key made of `pepper`.
    pub(super) fn new(pepper: &KeyPepper) -> Result<Self, SealError> {
        let sealer = Sealer::new(&pepper.derive("oauth requests"), b"turnpike oauth request")?;
        Ok(Self { sealer })
    }

    /// `None` = it could not be sealed, which no request causes.
    pub(super) fn write(&self, request: &Request, random: &[u8; 32]) -> Option<String> {
        let plain = serde_json::to_vec(request).ok()?;
        let sealed = self.sealer.seal(THING, &plain, &nonce(random)).ok()?;
        Some(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// The request in `text`, while it lasts.
    pub(super) fn read(&self, text: &str, now: Timestamp) -> Option<Request> {
        if text.len() > MAX_REQUEST {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let plain = self.sealer.open(THING, &sealed).ok()?;
        let request: Request = serde_json::from_slice(&plain).ok()?;
        (request.ends_at > now.millis()).then_some(request)
    }
}
