//! A configured provider: one of three kinds behind one set of calls.
//!
//! The rule: it is built once from settings and holds no per-call state; a URL is the parsed base plus path
//! segments fixed here or encoded by [`crate::tool`], never text of a caller. Which provider serves a call,
//! and whether another is tried, is the app's decision.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http::header::{AUTHORIZATION, HeaderName};
use http::uri::{Authority, Scheme};
use serde_json::Value;
use turnpike_core::money::Micros;

use crate::client::{Client, ClientSettings};
use crate::error::UpstreamError;
use crate::guard::Guard;
use crate::headers;
use crate::openai::stream::EventStream;
use crate::openai::{ChatApi, Completion, OpenAi};
use crate::secret::Secret;
use crate::simulated::Simulated;
use crate::tool::{CallBounds, Credential, HttpEndpoint, HttpTools, ToolReply, percent_encode};
use crate::webhook::{Destination, DestinationError};

/// Why a provider could not be built from its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The base URL is no `http` or `https` URL, or has user info, a query or a fragment.
    #[error("base_url must be an http or https URL without user info, query or fragment")]
    BaseUrl,
    /// The key cannot stand in a header.
    #[error("api_key has characters that cannot stand in a header")]
    ApiKey,
    /// No name of a header or of a member of a query, or both are named.
    #[error("auth_header or auth_query, not both, must be a usable name")]
    AuthName,
    /// The base URL is not one that whoever gave it may name.
    #[error("base_url: {0}")]
    Destination(#[from] DestinationError),
    /// The system's root certificates could not be read.
    #[error("no root certificates found: install the system's CA certificates")]
    TrustStore,
}

/// The kinds of providers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// OpenAI's wire format.
    OpenAi,
    /// Plain JSON endpoints, priced as tools.
    Http,
    /// Answers in-process, for tests and sandboxes.
    #[default]
    Simulated,
}

/// What a provider is built from.
#[derive(Clone, Debug)]
pub struct ProviderSettings {
    /// Its name in the configuration.
    pub id: String,
    /// Its kind.
    pub kind: ProviderKind,
    /// Where it is; unused when simulated.
    pub base_url: String,
    /// Its key, sent as a bearer token where nothing else is said.
    pub api_key: Option<Secret>,
    /// The header that the key is sent in as it is. For tools.
    pub auth_header: Option<String>,
    /// The member of the query that the key is sent in. For tools.
    pub auth_query: Option<String>,
    /// Who chose the base URL.
    pub guard: Guard,
    /// See [`ClientSettings`].
    pub connect_timeout: Duration,
    /// See [`ClientSettings`].
    pub header_timeout: Duration,
    /// See [`ClientSettings`].
    pub idle_timeout: Duration,
    /// See [`ClientSettings`].
    pub total_timeout: Duration,
    /// See [`ClientSettings`].
    pub pool_idle_timeout: Duration,
    /// See [`ClientSettings`].
    pub max_response_bytes: usize,
}

impl Default for ProviderSettings {
    fn default() -> Self {
        let client = ClientSettings::default();
        Self {
            id: String::new(),
            kind: ProviderKind::default(),
            base_url: String::new(),
            api_key: None,
            auth_header: None,
            auth_query: None,
            guard: client.guard,
            connect_timeout: client.connect_timeout,
            header_timeout: client.header_timeout,
            idle_timeout: client.idle_timeout,
            total_timeout: client.total_timeout,
            pool_idle_timeout: client.pool_idle_timeout,
            max_response_bytes: client.max_response_bytes,
        }
    }
}

impl ProviderSettings {
    fn client(&self) -> Result<Client, BuildError> {
        Client::new(ClientSettings {
            guard: self.guard,
            connect_timeout: self.connect_timeout,
            header_timeout: self.header_timeout,
            idle_timeout: self.idle_timeout,
            total_timeout: self.total_timeout,
            pool_idle_timeout: self.pool_idle_timeout,
            max_response_bytes: self.max_response_bytes,
            ..ClientSettings::default()
        })
    }

    /// The base URL; one that a user gave is checked as webhook endpoints are.
    fn base(&self) -> Result<BaseUrl, BuildError> {
        let allow_loopback = match self.guard {
            Guard::Operator => return BaseUrl::parse(&self.base_url),
            Guard::Public => false,
            Guard::PublicOrLoopback => true,
        };
        BaseUrl::parse(Destination::parse(&self.base_url, allow_loopback)?.as_str())
    }

    /// How tools say who calls.
    fn credential(&self) -> Result<Option<Credential>, BuildError> {
        let named = |name: &str| {
            let reserved = matches!(
                name.to_ascii_lowercase().as_str(),
                "host" | "content-length" | "connection"
            );
            let name = HeaderName::from_bytes(name.as_bytes());
            name.map_err(|_invalid| BuildError::AuthName).and_then(|name| {
                if reserved {
                    Err(BuildError::AuthName)
                } else {
                    Ok(name)
                }
            })
        };
        let (header, query) = (self.auth_header.as_deref(), self.auth_query.as_deref());
        match (&self.api_key, header, query) {
            (_, Some(_), Some(_)) | (_, _, Some("")) => Err(BuildError::AuthName),
            (None, Some(header), None) => named(header).map(|_usable| None),
            (None, None, _) => Ok(None),
            (Some(key), None, None) => Ok(Some(Credential::Header(AUTHORIZATION, headers::bearer(key)?))),
            (Some(key), Some(header), None) => {
                Ok(Some(Credential::Header(named(header)?, headers::plain(key)?)))
            }
            (Some(key), None, Some(query)) => {
                let (mut name, mut value) = (String::new(), String::new());
                percent_encode(&mut name, query);
                name.push('=');
                percent_encode(&mut value, key.expose());
                Ok(Some(Credential::Query(name, Secret::from(value))))
            }
        }
    }
}

/// A parsed base URL.
#[derive(Clone, Debug)]
pub(crate) struct BaseUrl {
    scheme: Scheme,
    authority: Authority,
    /// Without a slash at its end.
    path: String,
}

impl BaseUrl {
    pub(crate) fn parse(text: &str) -> Result<Self, BuildError> {
        let parts = text
            .parse::<Uri>()
            .map_err(|_invalid| BuildError::BaseUrl)?
            .into_parts();
        let scheme = parts
            .scheme
            .filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
        let authority = parts
            .authority
            .filter(|authority| !authority.as_str().contains('@'));
        let path = parts.path_and_query.filter(|path| path.query().is_none());
        match (scheme, authority, path) {
            (Some(scheme), Some(authority), path) if !text.contains('#') => {
                let path = path.map_or_else(String::new, |path| path.path().trim_end_matches('/').to_owned());
                if text.contains('?') {
                    return Err(BuildError::BaseUrl);
                }
                Ok(Self {
                    scheme,
                    authority,
                    path,
                })
            }
            (_, _, _) => Err(BuildError::BaseUrl),
        }
    }

    /// The base plus `suffix`, which begins with a slash and is encoded already.
    pub(crate) fn join(&self, suffix: &str) -> Result<Uri, BuildError> {
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(format!("{}{suffix}", self.path))
            .build()
            .map_err(|_invalid| BuildError::BaseUrl)
    }
}

#[derive(Debug)]
enum Adapter {
    OpenAi(OpenAi),
    Http(HttpTools),
    Simulated(Simulated),
}

/// A provider. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Provider {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    id: String,
    calls: AtomicU64,
    adapter: Adapter,
}

const NO_CHAT: UpstreamError = UpstreamError::NotSent {
    reason: "this provider has no chat",
};
const NO_TOOLS: UpstreamError = UpstreamError::NotSent {
    reason: "this provider has no such tool",
};

impl Provider {
    /// Builds a provider.
    ///
    /// # Errors
    /// [`BuildError`] for settings that cannot work.
    pub fn new(settings: &ProviderSettings) -> Result<Self, BuildError> {
        let adapter = match settings.kind {
            ProviderKind::OpenAi => {
                let auth = settings.api_key.as_ref().map(headers::bearer).transpose()?;
                let base = settings.base()?;
                Adapter::OpenAi(OpenAi::new(settings.client()?, &base, auth)?)
            }
            ProviderKind::Http => Adapter::Http(HttpTools::new(
                settings.client()?,
                settings.base()?,
                settings.credential()?,
            )),
            ProviderKind::Simulated => Adapter::Simulated(Simulated::default()),
        };
        let shared = Shared {
            id: settings.id.clone(),
            calls: AtomicU64::new(0),
            adapter,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// The provider's name in the configuration.
    pub fn id(&self) -> &str {
        &self.shared.id
    }

    /// Its kind.
    pub fn kind(&self) -> ProviderKind {
        match self.shared.adapter {
            Adapter::OpenAi(_) => ProviderKind::OpenAi,
            Adapter::Http(_) => ProviderKind::Http,
            Adapter::Simulated(_) => ProviderKind::Simulated,
        }
    }

    /// How many calls (completions, streams, tools; no quotes) were begun.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.shared.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// One call that is answered at once. `body` is the request as the provider gets it.
    pub async fn complete(&self, api: ChatApi, body: Bytes) -> Result<Completion, UpstreamError> {
        self.count();
        match &self.shared.adapter {
            Adapter::OpenAi(provider) => provider.complete(api, body).await,
            Adapter::Simulated(provider) => provider.complete(api, &body).await,
            Adapter::Http(_) => Err(NO_CHAT),
        }
    }

    /// One call that is answered by a stream; resolves when its first event has arrived. `body` must ask
    /// for a stream and for its usage.
    pub async fn stream(
        &self,
        api: ChatApi,
        body: Bytes,
        keep_usage_chunk: bool,
    ) -> Result<EventStream, UpstreamError> {
        self.count();
        match &self.shared.adapter {
            Adapter::OpenAi(provider) => provider.stream(api, body, keep_usage_chunk).await,
            Adapter::Simulated(provider) => provider.stream(api, &body, keep_usage_chunk).await,
            Adapter::Http(_) => Err(NO_CHAT),
        }
    }

    /// Runs a tool. `endpoint` names a simulated one, `spec` describes one over HTTP, which keeps within `bounds`.
    pub async fn execute(
        &self,
        endpoint: &str,
        spec: Option<&HttpEndpoint>,
        args: &Value,
        bounds: CallBounds,
    ) -> Result<ToolReply, UpstreamError> {
        self.count();
        match (&self.shared.adapter, spec) {
            (Adapter::Simulated(provider), _) => provider.execute(endpoint, args).await,
            (Adapter::Http(provider), Some(spec)) => provider.execute(spec, args, bounds).await,
            (Adapter::Http(_), None) | (Adapter::OpenAi(_), _) => Err(NO_TOOLS),
        }
    }

    /// Asks what a tool would cost with these args.
    pub async fn quote(
        &self,
        endpoint: &str,
        spec: Option<&HttpEndpoint>,
        args: &Value,
        bounds: CallBounds,
    ) -> Result<Micros, UpstreamError> {
        match (&self.shared.adapter, spec) {
            (Adapter::Simulated(provider), _) => provider.quote(endpoint, args),
            (Adapter::Http(provider), Some(spec)) => provider.quote(spec, args, bounds).await,
            (Adapter::Http(_), None) | (Adapter::OpenAi(_), _) => Err(NO_TOOLS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Fault matrix 101
    #[test]
    fn base_urls_with_surprises_are_refused() {
        for text in [
            "",
            "api.example.com",
            "/v1",
            "ftp://example.com",
            "https://user:pass@example.com/v1",
            "https://example.com/v1?x=1",
            "https://example.com/v1?",
            "https://example.com/#f",
            "https://",
            "file:///etc/passwd",
        ] {
            assert_eq!(BaseUrl::parse(text).err(), Some(BuildError::BaseUrl), "{text}");
        }
        for (text, joined) in [
            (
                "https://api.example.com/v1",
                "https://api.example.com/v1/chat/completions",
            ),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/chat/completions"),
            ("http://[::1]:80", "http://[::1]:80/chat/completions"),
        ] {
            let uri = BaseUrl::parse(text).unwrap().join("/chat/completions").unwrap();
            assert_eq!(uri.to_string(), joined);
        }
    }

    // Fault matrix 226
    #[test]
    fn settings_do_not_print_the_key() {
        let settings = ProviderSettings {
            kind: ProviderKind::OpenAi,
            base_url: "http://127.0.0.1:1".to_owned(),
            api_key: Some(Secret::new("sk-canary")),
            ..ProviderSettings::default()
        };
        let provider = Provider::new(&settings).unwrap();
        assert!(!format!("{settings:?} {provider:?}").contains("canary"));
        let broken = ProviderSettings {
            api_key: Some(Secret::new("a\nb")),
            ..settings
        };
        assert_eq!(Provider::new(&broken).err(), Some(BuildError::ApiKey));
    }
}
