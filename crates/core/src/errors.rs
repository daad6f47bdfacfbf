//! Every error code of the interface, in one table (decisions, section 2).
//!
//! Status and label stand here beside the code, so that documents, responses and tests are made of one
//! source. Choosing a code is the app's task; writing the response is the server's.

use serde::Serialize;

macro_rules! error_codes {
    ($($variant:ident $code:literal $status:literal $meaning:literal),+ $(,)?) => {
        /// A machine-readable error code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorCode { $(#[doc = $meaning] $variant),+ }

        impl ErrorCode {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The code on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            /// The HTTP status that goes with it.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status),+ }
            }

            /// One sentence for the documentation.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning),+ }
            }
        }
    };
}

error_codes! {
    ValidationError "VALIDATION_ERROR" 400 "The request does not have the specified form; `details` names the places.",
    UnknownField "UNKNOWN_FIELD" 400 "A field that this operation does not know.",
    InvalidJson "INVALID_JSON" 400 "The body is no JSON object, has a duplicate key, or is nested too deeply.",
    IdempotencyKeyRequired "IDEMPOTENCY_KEY_REQUIRED" 400 "A paid call needs an `Idempotency-Key` header.",
    IdempotencyKeyInvalid "IDEMPOTENCY_KEY_INVALID" 400 "`Idempotency-Key` must be one header of 1 to 255 visible ASCII characters.",
    SessionHeaderRequired "SESSION_HEADER_REQUIRED" 400 "The token is bound to a session whose value must be sent.",
    LoopHeaderRequired "LOOP_HEADER_REQUIRED" 400 "The end user's policy counts loops, so the call must name its loop.",
    TenantHeaderRequired "TENANT_HEADER_REQUIRED" 400 "You belong to several workspaces: say which one.",
    AttributionInvalid "ATTRIBUTION_INVALID" 400 "The attribution header is no JSON object within its limits.",
    OutputBudgetTooSmall "OUTPUT_BUDGET_TOO_SMALL" 400 "The output budget is below what this reasoning model needs (+ `field`, `recommendedMinOutputTokens`).",
    StreamUnsupported "STREAM_UNSUPPORTED" 400 "This operation does not stream.",
    ModelNotSupported "MODEL_NOT_SUPPORTED" 400 "The model is unknown or cannot do what was asked.",
    CursorInvalid "CURSOR_INVALID" 400 "The cursor is none that this list gave out.",
    ExternalUserIdNotAllowed "EXTERNAL_USER_ID_NOT_ALLOWED" 400 "The end user follows from the token and must not be sent.",
    BelowMinimum "below_minimum" 400 "The amount is below the minimum (+ `minUsd`).",
    AboveMaximum "above_maximum" 400 "The amount is above the maximum (+ `maxUsd`).",
    Unauthenticated "UNAUTHENTICATED" 401 "No credential was sent.",
    InvalidCredential "INVALID_CREDENTIAL" 401 "The credential is not valid.",
    CredentialExpired "CREDENTIAL_EXPIRED" 401 "The credential has expired.",
    CredentialRevoked "CREDENTIAL_REVOKED" 401 "The credential was revoked.",
    SessionMismatch "SESSION_MISMATCH" 401 "The session value is not the one the token is bound to.",
    StepUpRequired "STEP_UP_REQUIRED" 401 "A second factor within the last ten minutes is needed.",
    InsufficientCredits "INSUFFICIENT_CREDITS" 402 "The available balance does not cover the call (+ `requiredCredits`, `availableCredits`).",
    InsufficientScope "INSUFFICIENT_SCOPE" 403 "The credential lacks a scope (+ `requiredScopes`, `presentScopes`).",
    ForbiddenRole "FORBIDDEN_ROLE" 403 "Your role in the workspace does not allow this.",
    ScopeEscalation "SCOPE_ESCALATION" 403 "A key cannot be given scopes that its issuer lacks.",
    CredentialKindNotAllowed "CREDENTIAL_KIND_NOT_ALLOWED" 403 "This kind of credential cannot be used here.",
    TenantNotMember "TENANT_NOT_MEMBER" 403 "You are not a member of that workspace.",
    TenantSuspended "TENANT_SUSPENDED" 403 "The workspace is not active.",
    AccountFrozen "ACCOUNT_FROZEN" 403 "The balance is frozen.",
    EndUserRetired "END_USER_RETIRED" 403 "The end user was retired.",
    EndpointDisabled "ENDPOINT_DISABLED" 403 "The endpoint is not enabled for this credential.",
    SpendLimitExceeded "SPEND_LIMIT_EXCEEDED" 403 "A spending limit would be exceeded (+ `scope`, `limitUsd`, `spentUsd`, `resetsAt`).",
    PolicyDenied "POLICY_DENIED" 403 "The end user's policy does not allow this.",
    ApprovalRequired "APPROVAL_REQUIRED" 403 "The call needs an approval (+ `approvalUrl`).",
    MemberReadOnly "MEMBER_READ_ONLY" 403 "The membership is read-only.",
    NotFound "NOT_FOUND" 404 "There is no such thing here.",
    EndpointNotFound "ENDPOINT_NOT_FOUND" 404 "There is no such provider or endpoint.",
    EndUserNotFound "END_USER_NOT_FOUND" 404 "There is no such end user.",
    EventNotFound "EVENT_NOT_FOUND" 404 "There is no such event.",
    MethodNotAllowed "METHOD_NOT_ALLOWED" 405 "The path has other methods (+ `Allow` header).",
    RequestTimeout "REQUEST_TIMEOUT" 408 "The request body did not arrive in time.",
    IdempotencyKeyConflict "IDEMPOTENCY_KEY_CONFLICT" 409 "The idempotency key was used for another request.",
    IdempotencyInProgress "IDEMPOTENCY_IN_PROGRESS" 409 "The call of this idempotency key is still running (+ `Retry-After`).",
    QuoteReapprovalRequired "QUOTE_REAPPROVAL_REQUIRED" 409 "The price has moved above the approved quote.",
    EndUserNotRetirable "END_USER_NOT_RETIRABLE" 409 "Something is still open (+ `blockers`).",
    AlreadyExists "ALREADY_EXISTS" 409 "It exists already.",
    RequestIdConflict "REQUEST_ID_CONFLICT" 409 "The request id stands for another request.",
    RequestFailed "REQUEST_FAILED" 409 "The request failed for good.",
    ResultExpired "RESULT_EXPIRED" 410 "The call was made and charged; its answer is no longer kept.",
    RequestBodyTooLarge "REQUEST_BODY_TOO_LARGE" 413 "The body is over the limit (+ `limitBytes`).",
    UriTooLong "URI_TOO_LONG" 414 "The request target is too long.",
    UnsupportedMediaType "UNSUPPORTED_MEDIA_TYPE" 415 "The body must be uncompressed `application/json`.",
    RateLimited "RATE_LIMITED" 429 "Too many requests (+ `Retry-After`, `RateLimit`, `RateLimit-Policy`).",
    Internal "INTERNAL" 500 "A defect of the service; the request id finds it in the logs.",
    UpstreamError "UPSTREAM_ERROR" 502 "The provider failed; nothing was charged (+ `upstreamStatus`).",
    PriceUnavailable "PRICE_UNAVAILABLE" 503 "There is no price for this, so it is not sold.",
    ServiceUnavailable "SERVICE_UNAVAILABLE" 503 "Try again later (+ `Retry-After`); nothing was charged.",
    UpstreamTimeout "UPSTREAM_TIMEOUT" 504 "The provider did not answer in time; nothing was charged.",
}

impl ErrorCode {
    /// The code of a name on the wire.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }

    /// The short label of the status.
    pub const fn label(self) -> &'static str {
        match self.status() {
            400 => "Bad Request",
            401 => "Unauthorized",
            402 => "Payment Required",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            409 => "Conflict",
            410 => "Gone",
            413 => "Payload Too Large",
            414 => "URI Too Long",
            415 => "Unsupported Media Type",
            429 => "Too Many Requests",
            502 => "Bad Gateway",
            503 => "Service Unavailable",
            504 => "Gateway Timeout",
            _ => "Internal Server Error",
        }
    }

    /// Whether the same request may succeed later, so that a client's automatic retry makes sense.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::IdempotencyInProgress | Self::RateLimited | Self::RequestTimeout
        ) || self.status() >= 500
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_upper_snake_but_for_two_and_unique() {
        let mut seen = std::collections::BTreeSet::new();
        for code in ErrorCode::ALL {
            let text = code.as_str();
            assert!(seen.insert(text), "{text} twice");
            let upper = text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
            assert_eq!(upper, !matches!(text, "below_minimum" | "above_maximum"));
            assert_eq!(ErrorCode::parse(text), Some(*code));
        }
    }
}
