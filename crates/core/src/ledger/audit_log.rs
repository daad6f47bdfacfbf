//! The audit log: who changed what, numbered per workspace and chained by hash like its transfers.
//!
//! `hash = SHA-256(previous hash ‖ canonical encoding)`, so that a row that was edited, removed or inserted later shows
//! in the audit. The head of the chain is in the workspace's row; whoever appends holds that row.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::transfer::text;
use crate::ids::TenantId;
use crate::time::Timestamp;

/// A row of the log, as it is hashed.
#[derive(Clone, Copy, Debug)]
pub struct AuditLine<'a> {
    /// Position in the workspace's chain, from 1, without gaps.
    pub seq: i64,
    /// Its id.
    pub id: Uuid,
    /// The workspace.
    pub tenant: TenantId,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: &'a str,
    /// What.
    pub action: &'a str,
    /// On which thing.
    pub target: &'a str,
    /// The thing before, as JSON.
    pub before: Option<&'a str>,
    /// The thing afterwards, as JSON.
    pub after: Option<&'a str>,
    /// From where.
    pub origin: &'a str,
}

impl AuditLine<'_> {
    /// The chain hash of this row behind `previous`.
    pub fn chained(&self, previous: &[u8; 32]) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(previous);
        hasher.update(self.seq.to_be_bytes());
        hasher.update(self.id.as_bytes());
        hasher.update(self.tenant.0.as_bytes());
        hasher.update(self.at.millis().to_be_bytes());
        for value in [self.actor, self.action, self.target, self.origin] {
            text(&mut hasher, value);
        }
        for value in [self.before, self.after] {
            hasher.update([u8::from(value.is_some())]);
            text(&mut hasher, value.unwrap_or_default());
        }
        hasher.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_counts() {
        let line = AuditLine {
            seq: 1,
            id: Uuid::from_u128(1),
            tenant: TenantId(Uuid::from_u128(2)),
            at: Timestamp::from_millis(3),
            actor: "a",
            action: "b",
            target: "c",
            before: None,
            after: Some(""),
            origin: "d",
        };
        let first = line.chained(&[0; 32]);
        let others = [
            AuditLine { seq: 2, ..line },
            AuditLine {
                id: Uuid::from_u128(9),
                ..line
            },
            AuditLine {
                tenant: TenantId(Uuid::from_u128(9)),
                ..line
            },
            AuditLine {
                at: Timestamp::from_millis(9),
                ..line
            },
            AuditLine {
                actor: "ab",
                action: "",
                ..line
            },
            AuditLine { action: "x", ..line },
            AuditLine { target: "x", ..line },
            AuditLine { origin: "x", ..line },
            AuditLine {
                before: Some(""),
                ..line
            },
            AuditLine { after: None, ..line },
            AuditLine {
                before: Some(""),
                after: None,
                ..line
            },
        ];
        for (at, other) in others.iter().enumerate() {
            assert_ne!(other.chained(&[0; 32]), first, "{at}");
        }
        assert_ne!(line.chained(&[1; 32]), first);
        assert_eq!(line.chained(&[0; 32]), first);
    }
}
