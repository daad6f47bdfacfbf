//! The rules of the authorization server that are pure: proof keys (RFC 7636), scopes, and its error names (RFC 6749,
//! RFC 7591, RFC 8707).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::access::AgentScope;

/// The scope that asks for a refresh token.
pub const OFFLINE_ACCESS: &str = "offline_access";

/// Why a request to the authorization server is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OAuthErrorCode {
    /// Something is missing, malformed or stands twice.
    InvalidRequest,
    /// No such client.
    InvalidClient,
    /// The code or refresh token is not valid, or is another client's.
    InvalidGrant,
    /// Not a grant of this server.
    UnsupportedGrantType,
    /// Not a response type of this server.
    UnsupportedResponseType,
    /// A scope that there is not, or more than was granted.
    InvalidScope,
    /// Not a resource of this server.
    InvalidTarget,
    /// The person said no, or may not.
    AccessDenied,
    /// A redirect URI that cannot be registered.
    InvalidRedirectUri,
    /// Other metadata that cannot be registered.
    InvalidClientMetadata,
    /// The server cannot work right now.
    TemporarilyUnavailable,
}

impl OAuthErrorCode {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::InvalidClient => "invalid_client",
            Self::InvalidGrant => "invalid_grant",
            Self::UnsupportedGrantType => "unsupported_grant_type",
            Self::UnsupportedResponseType => "unsupported_response_type",
            Self::InvalidScope => "invalid_scope",
            Self::InvalidTarget => "invalid_target",
            Self::AccessDenied => "access_denied",
            Self::InvalidRedirectUri => "invalid_redirect_uri",
            Self::InvalidClientMetadata => "invalid_client_metadata",
            Self::TemporarilyUnavailable => "temporarily_unavailable",
        }
    }

    /// The HTTP status that goes with it.
    pub const fn status(self) -> u16 {
        if matches!(self, Self::InvalidClient) {
            401
        } else if matches!(self, Self::TemporarilyUnavailable) {
            503
        } else {
            400
        }
    }
}

/// Whether `text` can be a code challenge of the method `S256`: a SHA-256 in base64url without padding.
pub fn is_challenge(text: &str) -> bool {
    text.len() == 43 && URL_SAFE_NO_PAD.decode(text).is_ok_and(|bytes| bytes.len() == 32)
}

/// Whether `verifier` is what the challenge was made of (RFC 7636, section 4.6), compared in constant time.
pub fn proves(verifier: &str, challenge: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if !(43..=128).contains(&verifier.len()) || !verifier.bytes().all(allowed) {
        return false;
    }
    let made = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
    made.as_bytes().ct_eq(challenge.as_bytes()).into()
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scopes {
    /// What the connection may do, in the order of the table.
    pub agent: Vec<AgentScope>,
    /// Whether it is to last longer than one access token.
    pub offline: bool,
}

impl Scopes {
    /// Everything there is.
    pub fn all() -> Self {
        Self {
            agent: AgentScope::ALL.to_vec(),
            offline: true,
        }
    }

    /// Reads a list separated by spaces; `None` = a scope that there is not, or none that allows anything.
    pub fn parse(text: &str) -> Option<Self> {
        let mut scopes = Self {
            agent: Vec::new(),
            offline: false,
        };
        for name in text.split(' ').filter(|name| !name.is_empty()) {
            match AgentScope::ALL.iter().find(|scope| scope.as_str() == name) {
                Some(scope) => scopes.agent.push(*scope),
                None if name == OFFLINE_ACCESS => scopes.offline = true,
                None => return None,
            }
        }
        scopes.agent.sort_unstable();
        scopes.agent.dedup();
        (!scopes.agent.is_empty()).then_some(scopes)
    }

    /// Whether it asks for nothing that `granted` has not.
    pub fn is_within(&self, granted: &Self) -> bool {
        self.agent.iter().all(|scope| granted.agent.contains(scope)) && (granted.offline || !self.offline)
    }
}

impl std::fmt::Display for Scopes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut names: Vec<&str> = self.agent.iter().map(|scope| scope.as_str()).collect();
        if self.offline {
            names.push(OFFLINE_ACCESS);
        }
        f.write_str(&names.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_proves_its_own_challenge_alone() {
        // RFC 7636, appendix B.
        let (verifier, challenge) = (
            "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
        );
        assert!(is_challenge(challenge) && proves(verifier, challenge));
        assert!(!proves(challenge, challenge));
        assert!(!proves(&verifier[..42], challenge));
        assert!(!proves(&"a".repeat(129), challenge));
        for bad in ["", "x", &challenge[1..], &"=".repeat(43), &"é".repeat(21)] {
            assert!(!is_challenge(bad), "{bad}");
        }
    }

    #[test]
    fn scopes_are_read_and_never_widened() {
        let all = Scopes::parse("offline_access mcp:execute mcp:read mcp:read").unwrap();
        assert_eq!(all, Scopes::all());
        assert_eq!(all.to_string(), "mcp:read mcp:execute offline_access");
        let read = Scopes::parse("mcp:read").unwrap();
        assert!(read.is_within(&all) && !all.is_within(&read));
        assert!(!Scopes::parse("mcp:read offline_access").unwrap().is_within(&read));
        for bad in ["", " ", "openid", "mcp:read openid", "offline_access", "MCP:READ"] {
            assert_eq!(Scopes::parse(bad), None, "{bad}");
        }
    }
}
