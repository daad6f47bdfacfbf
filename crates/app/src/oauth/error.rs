//! What clients of the authorization server are told (RFC 6749, section 5.2).

use turnpike_core::oauth::OAuthErrorCode;
use turnpike_store::StoreError;

use crate::error::AppError;

/// A refused request to the authorization server.
#[derive(Clone, Debug)]
pub struct OAuthError {
    /// What went wrong.
    pub code: OAuthErrorCode,
    /// For the developer of the client.
    pub description: String,
}

impl OAuthError {
    /// A refusal.
    pub fn new(code: OAuthErrorCode, description: impl Into<String>) -> Self {
        Self {
            code,
            description: description.into(),
        }
    }

    /// A malformed request.
    pub(super) fn request(description: impl Into<String>) -> Self {
        Self::new(OAuthErrorCode::InvalidRequest, description)
    }

    /// A code or refresh token that does not work; why is not said.
    pub(super) fn grant() -> Self {
        let description = "the code or refresh token is not valid, has expired or was used before";
        Self::new(OAuthErrorCode::InvalidGrant, description)
    }

    /// A client that is not registered here, or not any more.
    pub(super) fn client() -> Self {
        let description = "there is no such client; register again";
        Self::new(OAuthErrorCode::InvalidClient, description)
    }
}

impl From<AppError> for OAuthError {
    fn from(error: AppError) -> Self {
        let code = match error.code.status() {
            status if status >= 500 => OAuthErrorCode::TemporarilyUnavailable,
            403 | 404 => OAuthErrorCode::InvalidGrant,
            _ => OAuthErrorCode::InvalidRequest,
        };
        Self::new(code, error.message)
    }
}

impl From<StoreError> for OAuthError {
    fn from(error: StoreError) -> Self {
        AppError::from(error).into()
    }
}
