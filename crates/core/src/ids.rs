//! Identifiers as types, so that one kind is never taken for another.
//!
//! Fresh ids are UUIDv7 made outside and passed in; ids that follow from another thing (the events and
//! transfers of a command, an end user's account) are derived here, so that a command gives the same rows
//! wherever and however often it is applied.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::time::{Day, Timestamp};
use crate::x402::Address;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

uuid_id!(
    /// A workspace.
    TenantId
);
uuid_id!(
    /// A metered call; also the id of its hold.
    CallId
);
uuid_id!(
    /// One command to the ledger.
    CommandId
);
uuid_id!(
    /// An API key's record.
    KeyId
);
uuid_id!(
    /// A webhook event.
    EventId
);
uuid_id!(
    /// A transfer; what the interface calls an entry id.
    TransferId
);

uuid_id!(
    /// A top-up: one purchase of credits.
    TopupId
);
uuid_id!(
    /// A refund of a top-up.
    RefundId
);
uuid_id!(
    /// A dispute of a top-up's payment.
    DisputeId
);
uuid_id!(
    /// An end-user token, its `jti`.
    TokenId
);
uuid_id!(
    /// An address of a workspace that is told of events.
    WebhookEndpointId
);
uuid_id!(
    /// One attempt to tell an endpoint of an event.
    DeliveryId
);
uuid_id!(
    /// A payout of margin.
    PayoutId
);
uuid_id!(
    /// A quote: what one call costs, before it is made.
    QuoteId
);
uuid_id!(
    /// Somebody's wish that a person decides about.
    ApprovalId
);
uuid_id!(
    /// A day of a provider whose metered and billed cost differ.
    DriftId
);
uuid_id!(
    /// A request that is paid for by the call: random, chosen by the caller or by us. Who knows it may fetch the answer.
    RequestId
);
uuid_id!(
    /// The receipt of a paid call.
    ReceiptId
);

impl RequestId {
    /// An id of ours: UUIDv7 (RFC 9562), so that requests of the same time stand beside each other in an index, with
    /// all its 74 other bits random: whoever knows it may fetch the answer, so no counter may stand in it.
    pub fn issued(at: Timestamp, random: [u8; 10]) -> Self {
        let millis = u64::try_from(at.millis()).unwrap_or_default();
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }
}

impl ReceiptId {
    /// The receipt of the request; the request cannot be told from it.
    pub fn of(request: RequestId) -> Self {
        Self(derive_v8(&[b"receipt", request.0.as_bytes()]))
    }
}

impl From<Address> for ExternalUserId {
    /// A wallet as the owner of its account.
    fn from(address: Address) -> Self {
        Self(address.to_string().into())
    }
}

/// How the ids of house tenants begin.
const HOUSE: [u8; 4] = *b"hous";

impl TenantId {
    /// Whether this is a house tenant.
    pub fn is_house(self) -> bool {
        self.0.get_version() == Some(uuid::Version::Custom) && self.0.as_bytes().starts_with(&HOUSE)
    }

    /// The house tenant whose books have the calls that wallets pay for in `asset` on `network`.
    pub fn house(network: &str, asset: Address) -> Self {
        let mut bytes = derive_v8(&[b"house", network.as_bytes(), &asset.0]).into_bytes();
        for (to, from) in bytes.iter_mut().zip(HOUSE) {
            *to = from;
        }
        Self(Uuid::from_bytes(bytes))
    }

    /// The distribution bucket, 0..=255: a stable hash of the id, first column of every key.
    pub fn bucket(self) -> i16 {
        let digest = Sha256::digest(self.0.as_bytes());
        i16::from(digest.first().copied().unwrap_or_default())
    }
}

impl EventId {
    /// The id of the `ordinal`-th event of a command.
    pub fn derive(at: Timestamp, command: CommandId, ordinal: u32) -> Self {
        Self(derive_v7(at, command, ordinal, b"event"))
    }
}

impl TransferId {
    /// The id of the `ordinal`-th transfer of a command.
    pub fn derive(at: Timestamp, command: CommandId, ordinal: u32) -> Self {
        Self(derive_v7(at, command, ordinal, b"transfer"))
    }
}

impl DisputeId {
    /// The id of the dispute that the processor calls `reference`.
    pub fn derive(tenant: TenantId, reference: &str) -> Self {
        Self(derive_v8(&[
            b"dispute",
            tenant.0.as_bytes(),
            reference.as_bytes(),
        ]))
    }
}

impl RefundId {
    /// The id of a refund that was made at the processor, which calls it `reference`.
    pub fn derive(tenant: TenantId, reference: &str) -> Self {
        Self(derive_v8(&[b"refund", tenant.0.as_bytes(), reference.as_bytes()]))
    }
}

impl DeliveryId {
    /// The id of the `attempt`-th attempt (from 1) to tell `endpoint` of `event`.
    pub fn derive(event: EventId, endpoint: WebhookEndpointId, attempt: i32) -> Self {
        Self(derive_v8(&[
            b"delivery",
            event.0.as_bytes(),
            endpoint.0.as_bytes(),
            &attempt.to_be_bytes(),
        ]))
    }
}

impl DriftId {
    /// The id of the drift of `provider` on `day`: a window has one for good.
    pub fn derive(tenant: TenantId, provider: &str, day: Day) -> Self {
        Self(derive_v8(&[
            b"usage drift",
            tenant.0.as_bytes(),
            provider.as_bytes(),
            &day.number().to_be_bytes(),
        ]))
    }
}

/// The id of the audit row of a command.
pub fn audit_id(at: Timestamp, command: CommandId) -> Uuid {
    derive_v7(at, command, 0, b"audit")
}

/// A UUIDv7 whose random part is a hash of its cause.
fn derive_v7(at: Timestamp, command: CommandId, ordinal: u32, what: &[u8]) -> Uuid {
    let mut hasher = Sha256::new();
    hasher.update(what);
    hasher.update(command.0.as_bytes());
    hasher.update(ordinal.to_be_bytes());
    let digest = hasher.finalize();
    let mut random = [0_u8; 10];
    for (to, from) in random.iter_mut().zip(digest) {
        *to = from;
    }
    uuid::Builder::from_unix_timestamp_millis(u64::try_from(at.millis()).unwrap_or_default(), &random)
        .into_uuid()
}

/// A UUIDv8 that stands for `parts` for good.
pub(crate) fn derive_v8(parts: &[&[u8]]) -> Uuid {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(part);
    }
    let digest = hasher.finalize();
    let mut bytes = [0_u8; 16];
    for (to, from) in bytes.iter_mut().zip(digest) {
        *to = from;
    }
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// A tenant's own name for one of its end users (specification 2.10): case-sensitive, 1..=200 characters of
/// `^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$`, no `.` or `..` path segment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExternalUserId(Arc<str>);

/// The text is no valid end-user id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be 1 to 200 characters of A-Z a-z 0-9 . _ : @ / - that begin with a letter or digit, without dot segments"
)]
pub struct InvalidExternalUserId;

impl ExternalUserId {
    /// Checks `text` against the pattern.
    ///
    /// # Errors
    /// [`InvalidExternalUserId`] for anything outside it.
    pub fn parse(text: &str) -> Result<Self, InvalidExternalUserId> {
        let first_ok = text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());
        let rest_ok = text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._:@/-".contains(&byte));
        let no_dots = text.split('/').all(|segment| segment != "." && segment != "..");
        if first_ok && rest_ok && no_dots && text.len() <= 200 {
            Ok(Self(text.into()))
        } else {
            Err(InvalidExternalUserId)
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExternalUserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ExternalUserId {
    type Error = InvalidExternalUserId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<ExternalUserId> for String {
    fn from(id: ExternalUserId) -> Self {
        id.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Fault matrix 149
    #[test]
    fn external_ids_follow_the_pattern() {
        for good in ["a", "A/b@c.d:e_f-g", &"x".repeat(200), "user..1", "a/b..c"] {
            assert!(ExternalUserId::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-a",
            ".a",
            "a b",
            "a/../b",
            "a/.",
            "ü",
            "a\n",
            &"x".repeat(201),
        ] {
            assert!(ExternalUserId::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn derived_ids_are_stable_and_distinct() {
        let command = CommandId(Uuid::from_u128(7));
        let at = Timestamp::from_millis(1_700_000_000_000);
        assert_eq!(EventId::derive(at, command, 0), EventId::derive(at, command, 0));
        assert_ne!(EventId::derive(at, command, 0), EventId::derive(at, command, 1));
        assert_eq!(EventId::derive(at, command, 0).0.get_version_num(), 7);
        assert_eq!(derive_v8(&[b"a"]).get_version_num(), 8);
    }
}
