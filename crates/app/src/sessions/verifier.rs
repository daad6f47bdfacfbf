//! The one way in for dashboard sessions, whoever signs them.

use std::sync::Arc;

use jsonwebtoken::Algorithm;
use sha2::{Digest as _, Sha256};
use turnpike_core::errors::ErrorCode;
use turnpike_core::time::Timestamp;

use super::claims::{FactorRules, Session};
use super::jws::{Refusal, SignedToken};
use super::keys::KeySet;
use super::provider::ProviderKeys;
use super::signer::SessionSigner;
use crate::error::AppError;

/// What is demanded of a session beside its signature.
#[derive(Clone, Debug)]
pub struct SessionRules {
    /// The issuer's name, to the character.
    pub issuer: String,
    /// This service's name for the issuer.
    pub audience: String,
    /// The algorithms that may have been used; symmetric ones are never among them.
    pub algorithms: Vec<Algorithm>,
    /// What shows a second factor.
    pub factors: FactorRules,
}

enum Keys {
    Own(Arc<KeySet>),
    Provider(ProviderKeys),
}

/// Verifies dashboard sessions.
pub struct SessionVerifier {
    rules: SessionRules,
    keys: Keys,
}

impl SessionVerifier {
    /// A verifier of sessions that this service signs itself.
    pub fn builtin(signer: &SessionSigner, factors: FactorRules) -> Self {
        Self {
            rules: SessionRules {
                issuer: signer.issuer().to_owned(),
                audience: signer.audience().to_owned(),
                algorithms: vec![Algorithm::EdDSA],
                factors,
            },
            keys: Keys::Own(Arc::new(signer.key_set())),
        }
    }

    /// A verifier of another provider's sessions.
    pub fn oidc(rules: SessionRules, keys: ProviderKeys) -> Self {
        Self {
            rules,
            keys: Keys::Provider(keys),
        }
    }

    /// What counts as a second factor.
    pub const fn factors(&self) -> &FactorRules {
        &self.rules.factors
    }

    /// Reads the provider's keys when that is due.
    ///
    /// # Errors
    /// As [`ProviderKeys::refresh`].
    pub async fn refresh(&self) -> Result<(), AppError> {
        match &self.keys {
            Keys::Own(_) => Ok(()),
            Keys::Provider(keys) => keys.refresh().await,
        }
    }

    /// The session in `token`.
    ///
    /// # Errors
    /// `CREDENTIAL_EXPIRED` for a genuine one whose time is over, else `INVALID_CREDENTIAL`; `SERVICE_UNAVAILABLE`
    /// while no key was ever read.
    pub async fn verify(&self, token: &str, now: Timestamp) -> Result<Session, AppError> {
        let refused = |refusal| match refusal {
            Refusal::Expired => AppError::new(ErrorCode::CredentialExpired, "the session has expired"),
            Refusal::Invalid(reason) => {
                tracing::debug!(reason, "a session was refused");
                AppError::new(ErrorCode::InvalidCredential, "the credential is not valid")
            }
        };
        let signed = SignedToken::parse(token, &self.rules.algorithms).map_err(refused)?;
        let keys = match &self.keys {
            Keys::Own(keys) => keys.clone(),
            Keys::Provider(keys) => keys.with(signed.kid.as_deref(), signed.algorithm).await?,
        };
        self.judge(&signed, &keys, now).map_err(refused)
    }

    fn judge(&self, signed: &SignedToken<'_>, keys: &KeySet, now: Timestamp) -> Result<Session, Refusal> {
        let key = keys
            .find(signed.kid.as_deref(), signed.algorithm)
            .ok_or(Refusal::Invalid("kid"))?;
        if !key.has_signed(signed.message, signed.signature, signed.algorithm) {
            return Err(Refusal::Invalid("signature"));
        }
        let names = (self.rules.issuer.as_str(), self.rules.audience.as_str());
        // Of the message, not of the token: some signatures can be written in more than one way.
        let digest = Sha256::digest(signed.message).into();
        Session::read(&signed.claims()?, names, &self.rules.factors, digest, now)
    }
}
