//! Who signs dashboard sessions: the section `identity` of the configuration, and what is built from it.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use turnpike_app::Environment;
use turnpike_app::sessions::{
    FactorRules, ProviderKeys, SessionRules, SessionSigner, SessionVerifier, parse_algorithm,
};
use turnpike_core::access::KeyPepper;
use turnpike_upstream::{IdentityError, IdentityProvider, KeyProvider as _};

use crate::config::{Config, ConfigError};
use crate::dev;
use crate::service::SetupError;

/// Longest `acr` value.
const MAX_ACR_BYTES: usize = 200;

/// Who signs dashboard sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum IdentityMode {
    /// This service itself.
    Builtin,
    /// An OpenID Connect provider.
    Oidc,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IdentityConfig {
    pub(crate) mode: IdentityMode,
    pub(crate) invite_first_owner: bool,
    pub(crate) issuer: String,
    pub(crate) audience: String,
    pub(crate) algorithms: Vec<String>,
    pub(crate) acr_values: Vec<String>,
    pub(crate) mfa_max_age_secs: i64,
    pub(crate) jwks_max_age_secs: i64,
}

fn wrong(what: &str) -> ConfigError {
    ConfigError(format!("identity.{what}"))
}

impl IdentityConfig {
    /// Refuses what cannot work.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if self.mode == IdentityMode::Oidc {
            if self.issuer.is_empty() || self.audience.is_empty() {
                return Err(wrong("issuer and audience are needed with mode = \"oidc\""));
            }
            self.provider()
                .map_err(|error| wrong(&format!("issuer: {error}")))?;
        }
        if self.algorithms.is_empty() || self.algorithms.iter().any(|name| parse_algorithm(name).is_none()) {
            return Err(wrong(
                "algorithms must be at least one of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA",
            ));
        }
        // They stand in a quoted string, with spaces between them (RFC 9470, section 3).
        let plain = |value: &String| {
            (1..=MAX_ACR_BYTES).contains(&value.len())
                && value
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte))
        };
        if !(1..=20).contains(&self.acr_values.len()) || !self.acr_values.iter().all(plain) {
            return Err(wrong(
                "acr_values must be 1 to 20 words without spaces, quotes and backslashes",
            ));
        }
        if !(1..=600).contains(&self.mfa_max_age_secs) {
            return Err(wrong("mfa_max_age_secs must be 1 to 600"));
        }
        if !(10..=86_400).contains(&self.jwks_max_age_secs) {
            return Err(wrong("jwks_max_age_secs must be 10 to 86400"));
        }
        Ok(())
    }

    /// What a second factor is.
    fn factors(&self) -> FactorRules {
        FactorRules {
            acr_values: self.acr_values.clone(),
            max_age_secs: self.mfa_max_age_secs,
        }
    }

    /// The provider of mode `oidc`.
    pub(crate) fn provider(&self) -> Result<IdentityProvider, IdentityError> {
        IdentityProvider::new(&self.issuer)
    }

    /// What `WWW-Authenticate` says when a second factor is wanted (RFC 9470, section 3).
    pub(crate) fn challenge(&self) -> String {
        let acr = self.acr_values.first().map_or("mfa", String::as_str);
        let age = self.mfa_max_age_secs;
        format!("Bearer error=\"insufficient_user_authentication\", acr_values=\"{acr}\", max_age={age}")
    }
}

/// Who verifies sessions, and who signs them when that is us.
pub(crate) struct Identity {
    pub(crate) verifier: SessionVerifier,
    pub(crate) signer: Option<Arc<SessionSigner>>,
}

impl Identity {
    /// As configured. Nobody is asked for keys yet.
    pub(crate) fn build(
        config: &Config,
        pepper: &KeyPepper,
        environment: &Arc<dyn Environment>,
    ) -> Result<Self, SetupError> {
        let section = &config.identity;
        if section.mode == IdentityMode::Builtin {
            let signer = signer(config, pepper, environment)?;
            return Ok(Self {
                verifier: SessionVerifier::builtin(&signer, section.factors()),
                signer: Some(Arc::new(signer)),
            });
        }
        let provider = section
            .provider()
            .map_err(|error| SetupError::Other(error.to_string()))?;
        let max_age_ms = section.jwks_max_age_secs.saturating_mul(1000);
        let rules = SessionRules {
            issuer: section.issuer.clone(),
            audience: section.audience.clone(),
            algorithms: section
                .algorithms
                .iter()
                .filter_map(|name| parse_algorithm(name))
                .collect(),
            factors: section.factors(),
        };
        let keys = ProviderKeys::new(Arc::new(provider), environment.clone(), max_age_ms);
        Ok(Self {
            verifier: SessionVerifier::oidc(rules, keys),
            signer: None,
        })
    }
}

/// The signer of mode `builtin`.
fn signer(
    config: &Config,
    pepper: &KeyPepper,
    environment: &Arc<dyn Environment>,
) -> Result<SessionSigner, SetupError> {
    let base = config.server.public_url.trim_end_matches('/');
    let or = |configured: &str, below: &str| {
        if configured.is_empty() {
            format!("{base}{below}")
        } else {
            configured.to_owned()
        }
    };
    let issuer = or(&config.identity.issuer, "/identity");
    let audience = or(&config.identity.audience, "/api/credits/dashboard");
    Ok(SessionSigner::derived(
        pepper,
        issuer,
        audience,
        environment.clone(),
    )?)
}

/// The signer for a command beside the service.
pub(crate) fn signer_beside(
    mut config: Config,
    data: &Path,
    pepper: &KeyPepper,
    environment: &Arc<dyn Environment>,
) -> Result<SessionSigner, SetupError> {
    if config.identity.mode == IdentityMode::Oidc {
        return Err(SetupError::Other(format!(
            "identity.mode is \"oidc\": only {} signs sessions; sign in there",
            config.identity.issuer
        )));
    }
    if config.server.public_url.is_empty() {
        config.server.public_url =
            dev::public_url(data).unwrap_or_else(|| format!("http://{}", config.server.listen));
    }
    signer(&config, pepper, environment)
}

/// Whether sessions can be verified, in words for the operator.
pub(crate) async fn check(section: &IdentityConfig) -> Result<String, String> {
    if section.mode == IdentityMode::Builtin {
        return Ok("builtin: this service signs its own sessions".to_owned());
    }
    let hint = |error: IdentityError| {
        let what = match error {
            IdentityError::Issuer | IdentityError::Build(_) => "correct identity.issuer",
            IdentityError::Discovery(_) => {
                "identity.issuer must be where /.well-known/openid-configuration is served, and be reachable from here"
            }
            IdentityError::OtherIssuer => {
                "write identity.issuer exactly as the provider's configuration does, slash and all"
            }
            IdentityError::Place | IdentityError::Keys(_) => {
                "the jwks_uri of the provider's configuration must be reachable from here by https"
            }
            IdentityError::NoKeys => "let the provider sign with RSA, P-256, P-384 or Ed25519",
        };
        format!("{error}; {what}")
    };
    let keys = section.provider().map_err(hint)?.fetch().await.map_err(hint)?;
    Ok(format!("{} publishes {} usable keys", section.issuer, keys.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Config, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("t.toml");
        std::fs::write(&file, format!("[identity]\n{text}\n")).unwrap();
        Config::load(Some(&file), false)
    }

    const OIDC: &str =
        "mode = \"oidc\"\nissuer = \"https://id.example\"\naudience = \"https://svc.example/api\"\n";

    #[test]
    fn the_challenge_names_what_is_configured() {
        assert_eq!(
            load("").unwrap().identity.challenge(),
            "Bearer error=\"insufficient_user_authentication\", acr_values=\"mfa\", max_age=600"
        );
        let other = load("acr_values = [\"urn:svc:mfa\", \"mfa\"]\nmfa_max_age_secs = 60").unwrap();
        assert_eq!(
            other.identity.challenge(),
            "Bearer error=\"insufficient_user_authentication\", acr_values=\"urn:svc:mfa\", max_age=60"
        );
    }

    #[test]
    fn what_cannot_work_is_refused() {
        assert!(load(OIDC).is_ok());
        for wrong in [
            "mode = \"saml\"",
            "mode = \"oidc\"",
            "mode = \"oidc\"\nissuer = \"https://id.example\"",
            "mode = \"oidc\"\nissuer = \"http://id.example\"\naudience = \"a\"",
            "mode = \"oidc\"\nissuer = \"id.example\"\naudience = \"a\"",
            "algorithms = []",
            "algorithms = [\"HS256\"]",
            "algorithms = [\"RS256\", \"none\"]",
            "acr_values = []",
            "acr_values = [\"a b\"]",
            "acr_values = ['a\"b']",
            "mfa_max_age_secs = 601",
            "mfa_max_age_secs = 0",
            "jwks_max_age_secs = 9",
        ] {
            assert!(load(wrong).is_err(), "{wrong}");
        }
    }
}
