//! An OpenID Connect provider, as far as it says with which keys it signs (OpenID Connect Discovery 1.0).
//!
//! The rule: what is read is bounded in size and time and comes from where the operator and then the provider's own
//! document point, by https unless both are this machine. Nothing that a token says has a part in it. How long the
//! keys count and what they verify is the app's business.

mod keys;
#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Uri};
use serde::Deserialize;
use url::{Host, Url};

use crate::client::{Client, ClientSettings};
use crate::error::UpstreamError;
use crate::guard::{Guard, is_loopback_name};
use crate::headers::{self, Accept};
use crate::provider::BuildError;

pub use keys::{Curve, KeyMaterial, MAX_KEYS, PublicKey, parse_key_set};

const WELL_KNOWN: &str = "/.well-known/openid-configuration";
/// Longest issuer.
const MAX_ISSUER_BYTES: usize = 512;
/// Largest document that is read.
const MAX_DOCUMENT_BYTES: usize = 256 * 1024;
const CONNECT_WAIT: Duration = Duration::from_secs(3);
/// For one document, connecting included.
const TOTAL_WAIT: Duration = Duration::from_secs(5);

/// Why a provider's keys are not there. The texts are for the operator; none comes from the provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The configured issuer cannot be one.
    #[error(
        "the issuer must be an https URL without user info, query and fragment (http on this machine only)"
    )]
    Issuer,
    /// No client could be built.
    #[error("{0}")]
    Build(BuildError),
    /// The discovery document could not be read.
    #[error("the provider's configuration could not be read: {0}")]
    Discovery(UpstreamError),
    /// The discovery document is of another issuer.
    #[error("the provider calls itself by another issuer than the configured one")]
    OtherIssuer,
    /// The discovery document names no usable place of the keys.
    #[error("the provider's configuration names no place of its keys that may be asked")]
    Place,
    /// The keys could not be read.
    #[error("the provider's keys could not be read: {0}")]
    Keys(UpstreamError),
    /// None of the keys is one for signatures that can be verified.
    #[error("the provider publishes no usable signature key")]
    NoKeys,
}

/// Where keys come from.
#[async_trait]
pub trait KeyProvider: Send + Sync {
    /// The keys that the provider signs with now: at least one.
    async fn fetch(&self) -> Result<Vec<PublicKey>, IdentityError>;
}

/// A provider on the network.
#[derive(Debug)]
pub struct IdentityProvider {
    client: Client,
    issuer: String,
    discovery: Url,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

/// Whether nothing sent to `url` leaves this machine.
fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => is_loopback_name(name),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// `text` as a URL that may be asked.
fn place(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let named = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    let private = url.scheme() == "https" || (url.scheme() == "http" && is_local(&url));
    (named && private).then_some(url)
}

impl IdentityProvider {
    /// The provider that calls itself `issuer`.
    ///
    /// # Errors
    /// [`IdentityError::Issuer`] for what cannot be an issuer, [`IdentityError::Build`].
    pub fn new(issuer: &str) -> Result<Self, IdentityError> {
        let base = Some(issuer)
            .filter(|issuer| issuer.len() <= MAX_ISSUER_BYTES && !issuer.contains(['?', '#']))
            .and_then(place)
            .ok_or(IdentityError::Issuer)?;
        // A terminating slash is removed first (Discovery 1.0, section 4.1).
        let discovery = format!("{}{WELL_KNOWN}", base.as_str().trim_end_matches('/'));
        let settings = ClientSettings {
            guard: Guard::Operator,
            connect_timeout: CONNECT_WAIT,
            header_timeout: TOTAL_WAIT,
            idle_timeout: TOTAL_WAIT,
            total_timeout: TOTAL_WAIT,
            max_idle_per_host: 1,
            max_response_bytes: MAX_DOCUMENT_BYTES,
            ..ClientSettings::default()
        };
        Ok(Self {
            client: Client::new(settings).map_err(IdentityError::Build)?,
            issuer: issuer.to_owned(),
            discovery: Url::parse(&discovery).map_err(|_invalid| IdentityError::Issuer)?,
        })
    }

    /// Where the keys are, by the provider's own account.
    async fn key_place(&self) -> Result<Url, IdentityError> {
        let document = self
            .read(&self.discovery)
            .await
            .map_err(IdentityError::Discovery)?;
        let found: Discovery = serde_json::from_slice(&document)
            .map_err(|_malformed| IdentityError::Discovery(UpstreamError::bad("not a discovery document")))?;
        // INVARIANT: the document is the configured issuer's (Discovery 1.0, section 4.3), to the character.
        if found.issuer != self.issuer {
            return Err(IdentityError::OtherIssuer);
        }
        // Who is reached by https does not send us to a port of this machine.
        place(&found.jwks_uri)
            .filter(|place| place.scheme() == "https" || is_local(&self.discovery))
            .ok_or(IdentityError::Place)
    }

    async fn read(&self, url: &Url) -> Result<Bytes, UpstreamError> {
        let uri: Uri = url.as_str().parse().map_err(|_invalid| UpstreamError::NotSent {
            reason: "the address is no valid URL",
        })?;
        let deadline = self.client.total_deadline();
        let headers = headers::request_headers(Accept::Json, false, None);
        let response = self.client.send(Method::GET, uri, headers, Bytes::new()).await?;
        if !response.status().is_success() {
            return Err(self.client.status_error(response, deadline).await);
        }
        self.client.collect(response.into_body(), deadline).await
    }
}

#[async_trait]
impl KeyProvider for IdentityProvider {
    async fn fetch(&self) -> Result<Vec<PublicKey>, IdentityError> {
        let place = self.key_place().await?;
        let document = self.read(&place).await.map_err(IdentityError::Keys)?;
        let keys =
            parse_key_set(&document).ok_or(IdentityError::Keys(UpstreamError::bad("not a key set")))?;
        if keys.is_empty() {
            return Err(IdentityError::NoKeys);
        }
        Ok(keys)
    }
}
