//! Where messages go: a URL that a user gave, read as browsers read it, and checked.
//!
//! The rule: what is stored and connected to is the normalised URL, in which an IPv4 address has one form
//! only; every literal address and loopback name is judged here, other names by what they resolve to. A URL
//! that was good at registration is judged again at every attempt.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use url::{Host, Url};

use crate::guard::{Guard, is_allowed_port, is_loopback_name};

/// Longest URL, in bytes, as given and as normalised.
pub const MAX_URL_BYTES: usize = 2048;

/// Why a URL cannot be a destination; the texts are for the one who gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// No absolute URL with a host, or one with blanks.
    #[error("url is not a valid absolute URL")]
    Malformed,
    /// Above [`MAX_URL_BYTES`].
    #[error("url must have at most 2048 characters")]
    TooLong,
    /// Not `https`.
    #[error("url must begin with https://")]
    Scheme,
    /// A user name or password.
    #[error("url must not have a user name or password")]
    UserInfo,
    /// A `#` part, which no server sees.
    #[error("url must not have a fragment")]
    Fragment,
    /// A privileged port besides the web's.
    #[error("url must use port 443, 80, or one from 1024 upwards")]
    Port,
    /// Its address is not on the public internet.
    #[error("url must lead to a public internet address")]
    NotPublic,
    /// Its name has no address, or the resolver failed.
    #[error("the host name of url could not be resolved")]
    Unresolved,
}

/// A URL that messages may be sent to, as far as can be said without resolving its name.
#[derive(Clone, PartialEq, Eq)]
pub struct Destination {
    url: String,
    uri: Uri,
    /// `None` for a literal address, which needs no resolving.
    name: Option<String>,
}

impl Destination {
    /// Reads and checks a URL. `allow_loopback` is for development: loopback destinations, also over `http`
    /// and on any port.
    ///
    /// # Errors
    /// Every [`DestinationError`] but `Unresolved`.
    pub fn parse(text: &str, allow_loopback: bool) -> Result<Self, DestinationError> {
        if text.len() > MAX_URL_BYTES {
            return Err(DestinationError::TooLong);
        }
        // The parser would silently remove them.
        if text.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
            return Err(DestinationError::Malformed);
        }
        let url = Url::parse(text).map_err(|_invalid| DestinationError::Malformed)?;
        let address = match url.host() {
            Some(Host::Domain(_)) => None,
            Some(Host::Ipv4(v4)) => Some(IpAddr::V4(v4)),
            Some(Host::Ipv6(v6)) => Some(IpAddr::V6(v6)),
            None => return Err(scheme_or_malformed(&url)),
        };
        let host = url.host_str().ok_or(DestinationError::Malformed)?;
        let loopback = address.map_or_else(|| is_loopback_name(host), |address| address.is_loopback());
        let itself = loopback && allow_loopback;
        match url.scheme() {
            "https" => {}
            "http" if itself => {}
            _ => return Err(DestinationError::Scheme),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(DestinationError::UserInfo);
        }
        if url.fragment().is_some() {
            return Err(DestinationError::Fragment);
        }
        let guard = guard(allow_loopback);
        if (loopback && !itself) || address.is_some_and(|address| !guard.allows(address)) {
            return Err(DestinationError::NotPublic);
        }
        if !itself && !url.port_or_known_default().is_some_and(is_allowed_port) {
            return Err(DestinationError::Port);
        }
        if url.as_str().len() > MAX_URL_BYTES {
            return Err(DestinationError::TooLong);
        }
        let uri: Uri = url
            .as_str()
            .parse()
            .map_err(|_invalid| DestinationError::Malformed)?;
        let name = address.is_none().then(|| host.to_owned());
        // INVARIANT: the guard of the connection and the parser of URLs saw the same host.
        if uri.host() != Some(host) {
            return Err(DestinationError::Malformed);
        }
        Ok(Self {
            name,
            uri,
            url: url.into(),
        })
    }

    /// The normalised URL: what is stored, shown and sent to.
    pub fn as_str(&self) -> &str {
        &self.url
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The name to be resolved, if it has one.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

/// The guard of destinations.
pub(super) fn guard(allow_loopback: bool) -> Guard {
    if allow_loopback {
        Guard::PublicOrLoopback
    } else {
        Guard::Public
    }
}

fn scheme_or_malformed(url: &Url) -> DestinationError {
    match url.scheme() {
        "http" | "https" => DestinationError::Malformed,
        _ => DestinationError::Scheme,
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// The host only: paths and queries of such URLs carry tokens.
impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Destination({})", self.uri.host().unwrap_or_default())
    }
}
