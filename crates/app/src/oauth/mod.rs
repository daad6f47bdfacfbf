//! The authorization server for agents (OAuth 2.1; MCP authorization 2025-06-18).
//!
//! Public clients register by themselves, a member agrees on a page of ours, and what comes of it is an agent connection
//! like any other. Tokens are opaque, kept as keyed hashes, and work at our MCP endpoint alone. What was asked for is
//! carried between the pages sealed; nothing is kept of a request that nobody agreed to.

mod authorize;
mod clients;
mod error;
mod grant;
mod redirect;
#[cfg(test)]
mod tests;
mod token;

use std::sync::Arc;

use serde_json::{Value, json};
use turnpike_core::access::{AgentScope, AgentSecret, AgentSecretKind, KeyHash, KeyPepper};
use turnpike_core::oauth::OFFLINE_ACCESS;
use turnpike_core::time::Timestamp;
use turnpike_store::Store;

pub use self::authorize::{Asked, Choice, Refusal};
pub use self::error::OAuthError;
use self::grant::Requests;
use crate::agents::AgentDesk;
use crate::environment::Environment;
use crate::error::AppError;

/// Where agents speak MCP: the one resource of this server.
pub const MCP_PATH: &str = "/api/credits/mcp";
/// Where a protected resource says who its authorization server is (RFC 9728, section 3.1).
pub const RESOURCE_METADATA_PATH: &str = "/.well-known/oauth-protected-resource/api/credits/mcp";

/// The use cases of the authorization server.
pub struct OAuthDesk {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    agents: Arc<AgentDesk>,
    requests: Requests,
    pepper: KeyPepper,
    brand: Arc<str>,
    issuer: String,
    /// Whether people can agree here.
    is_open: bool,
}

/// The parameters of a request, each of which stands once.
pub type Parameters = Vec<(String, String)>;

impl OAuthDesk {
    /// A desk of the service at `public_url`, whose own pages ask people when `is_open`.
    ///
    /// # Errors
    /// When the key of its requests cannot be derived, which no pepper causes.
    pub fn new(
        store: Arc<dyn Store>,
        environment: Arc<dyn Environment>,
        agents: Arc<AgentDesk>,
        pepper: KeyPepper,
        brand: Arc<str>,
        public_url: &str,
        is_open: bool,
    ) -> Result<Self, AppError> {
        let requests = Requests::new(&pepper).map_err(|error| AppError::internal(&error))?;
        Ok(Self {
            store,
            environment,
            agents,
            requests,
            pepper,
            brand,
            issuer: public_url.trim_end_matches('/').to_owned(),
            is_open,
        })
    }

    /// Whether people can agree here: only where this service signs them in.
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Who it is in its metadata and answers.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The one resource that tokens are granted for.
    pub fn resource(&self) -> String {
        format!("{}{MCP_PATH}", self.issuer)
    }

    /// Where the resource's metadata is.
    pub fn resource_metadata_url(&self) -> String {
        format!("{}{RESOURCE_METADATA_PATH}", self.issuer)
    }

    /// Its own metadata (RFC 8414, section 2; RFC 9207 for `iss`).
    pub fn server_metadata(&self) -> Value {
        let at = |path: &str| format!("{}{path}", self.issuer);
        json!({
            "issuer": self.issuer,
            "authorization_endpoint": at("/oauth/authorize"),
            "token_endpoint": at("/oauth/token"),
            "registration_endpoint": at("/oauth/register"),
            "revocation_endpoint": at("/oauth/revoke"),
            "scopes_supported": scopes(),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
            "protected_resources": [self.resource()],
        })
    }

    /// The MCP endpoint's metadata (RFC 9728, section 2).
    pub fn resource_metadata(&self) -> Value {
        let mut metadata = json!({
            "resource": self.resource(),
            "scopes_supported": scopes(),
            "bearer_methods_supported": ["header"],
            "resource_name": "Turnpike tools for agents",
        });
        if let (true, Some(members)) = (self.is_open, metadata.as_object_mut()) {
            members.insert("authorization_servers".to_owned(), json!([self.issuer]));
        }
        metadata
    }

    /// Forgets clients, codes and tokens that are over.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn prune(&self) -> Result<u64, AppError> {
        Ok(self.store.prune_oauth(self.agents.kept_since()).await?)
    }

    fn now(&self) -> Timestamp {
        self.environment.now()
    }

    /// A new secret of `kind`, and what is kept of it.
    fn secret(&self, kind: AgentSecretKind) -> (AgentSecret, KeyHash) {
        let secret = AgentSecret::generate(&self.brand, kind, &self.environment.random_32());
        let hash = secret.hash(&self.pepper);
        (secret, hash)
    }

    /// What is kept of a presented secret; `None` = it is none of that kind.
    fn hash_of(&self, kind: AgentSecretKind, text: &str) -> Option<KeyHash> {
        let secret = AgentSecret::parse(&self.brand, kind, text).ok()?;
        Some(secret.hash(&self.pepper))
    }
}

/// Every scope that a client may ask for.
pub fn scopes() -> Vec<&'static str> {
    let mut scopes: Vec<&str> = AgentScope::ALL.iter().map(|scope| scope.as_str()).collect();
    scopes.push(OFFLINE_ACCESS);
    scopes
}
