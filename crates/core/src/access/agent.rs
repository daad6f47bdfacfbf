//! What agents present: `{brand}_{ac|at|rt|co}_` and what keys have behind their prefix.
//!
//! An agent connection's own secret, and the access tokens, refresh tokens and codes of the authorization server. All of
//! them are kept only as a keyed hash.

use std::fmt;

use super::key::{KeyFormatError, KeyHash, KeyPepper, MAX_KEY_CHARS, is_sealed, sealed};
use crate::ledger::account::coded_enum;

coded_enum! {
    /// What an agent connection may do.
    AgentScope {
        /// Find tools, read what they cost, read its balance and the results of its calls.
        Read = 0 "mcp:read",
        /// Call tools and models.
        Execute = 1 "mcp:execute",
    }
}

coded_enum! {
    /// What a secret is for.
    AgentSecretKind {
        /// An agent connection, for as long as it lives.
        Connection = 0 "ac",
        /// An access token.
        Access = 1 "at",
        /// A refresh token.
        Refresh = 2 "rt",
        /// An authorization code.
        Code = 3 "co",
    }
}

/// A raw secret. It can be shown once and hashed; it cannot be cloned or printed by accident.
pub struct AgentSecret(String);

impl AgentSecret {
    /// A secret from 32 random bytes.
    pub fn generate(brand: &str, kind: AgentSecretKind, random: &[u8; 32]) -> Self {
        Self(sealed(&format!("{brand}_{kind}_"), random))
    }

    /// What kind of secret `text` looks like.
    pub fn kind_of(brand: &str, text: &str) -> Option<AgentSecretKind> {
        let rest = text.strip_prefix(brand)?.strip_prefix('_')?;
        let (infix, _) = rest.split_once('_')?;
        AgentSecretKind::ALL
            .iter()
            .copied()
            .find(|kind| kind.as_str() == infix)
    }

    /// Reads a presented secret of `kind`.
    ///
    /// # Errors
    /// [`KeyFormatError`] when the prefix, the length, the alphabet or the checksum is wrong.
    pub fn parse(brand: &str, kind: AgentSecretKind, text: &str) -> Result<Self, KeyFormatError> {
        let body = text
            .strip_prefix(brand)
            .and_then(|rest| rest.strip_prefix('_'))
            .and_then(|rest| rest.strip_prefix(kind.as_str()))
            .and_then(|rest| rest.strip_prefix('_'))
            .filter(|_body| text.len() <= MAX_KEY_CHARS)
            .ok_or(KeyFormatError)?;
        if is_sealed(text, body) {
            Ok(Self(text.to_owned()))
        } else {
            Err(KeyFormatError)
        }
    }

    /// The raw secret, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The first characters, which may be shown in lists.
    pub fn prefix(&self) -> &str {
        let visible = self.0.rfind('_').map_or(0, |at| at.saturating_add(5));
        self.0.get(..visible).unwrap_or_default()
    }

    /// What the store keeps.
    pub fn hash(&self, pepper: &KeyPepper) -> KeyHash {
        pepper.hash(self.0.as_bytes())
    }
}

impl fmt::Debug for AgentSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_round_trips_as_its_kind_and_as_no_other() {
        for kind in AgentSecretKind::ALL {
            let secret = AgentSecret::generate("svc", *kind, &[0xA7; 32]);
            assert_eq!(AgentSecret::kind_of("svc", secret.reveal()), Some(*kind));
            for other in AgentSecretKind::ALL {
                let read = AgentSecret::parse("svc", *other, secret.reveal());
                assert_eq!(read.is_ok(), kind == other);
            }
            assert_eq!(secret.prefix().len(), "svc_ac_".len() + 4);
            assert_eq!(format!("{secret:?}"), "[redacted]");
            let typo = secret
                .reveal()
                .replacen(&format!("_{kind}_"), &format!("_{kind}_0"), 1);
            for bad in ["", "svc_ac_", &typo, &format!("svc_ac_{}", "a".repeat(10_000))] {
                assert!(AgentSecret::parse("svc", *kind, bad).is_err());
            }
        }
        assert_eq!(AgentSecret::kind_of("svc", "svc_sk_live_x"), None);
        assert_eq!(AgentSecret::kind_of("svc", "eyJ.x.y"), None);
    }
}
