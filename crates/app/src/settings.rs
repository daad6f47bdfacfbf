//! What a workspace's settings must look like before they are kept.

use turnpike_core::money::Micros;
use turnpike_store::TenantSettings;
use url::Url;

use crate::error::AppError;

/// Longest list of hosts or origins.
const MAX_LIST: usize = 50;

/// Checks settings that were read from a request.
///
/// # Errors
/// `VALIDATION_ERROR` that names the member.
pub fn validate(settings: &TenantSettings) -> Result<(), AppError> {
    let topups = &settings.topups;
    if topups.min_usd.is_some_and(|min| min <= Micros::ZERO) {
        return Err(AppError::invalid("topups.minUsd", "must be more than zero"));
    }
    if let (Some(min), Some(max)) = (topups.min_usd, topups.max_usd)
        && min > max
    {
        return Err(AppError::invalid(
            "topups.maxUsd",
            "must not be below topups.minUsd",
        ));
    }
    if topups.url_hosts.len() > MAX_LIST || !topups.url_hosts.iter().all(|host| is_host(host)) {
        return Err(AppError::invalid(
            "topups.urlHosts",
            "must be at most 50 host names, without scheme, port or path",
        ));
    }
    let origins = &settings.allowed_origins;
    if origins.len() > MAX_LIST || !origins.iter().all(|origin| is_origin(origin)) {
        return Err(AppError::invalid(
            "allowedOrigins",
            "must be at most 50 origins such as https://app.example.com",
        ));
    }
    Ok(())
}

fn is_host(text: &str) -> bool {
    Url::parse(&format!("https://{text}/")).is_ok_and(|url| {
        url.host_str() == Some(&*text.to_ascii_lowercase()) && url.port().is_none() && url.path() == "/"
    })
}

/// Exactly as a browser writes it (RFC 6454, section 6.2).
fn is_origin(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "https" | "http") && url.origin().ascii_serialization() == text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_origins_are_exact() {
        for good in ["shop.example", "localhost", "127.0.0.1", "[::1]"] {
            assert!(is_host(good), "{good}");
        }
        for bad in [
            "",
            "https://shop.example",
            "shop.example:443",
            "shop.example/x",
            "a b",
            "a@b",
        ] {
            assert!(!is_host(bad), "{bad}");
        }
        for good in ["https://app.example", "http://localhost:3000"] {
            assert!(is_origin(good), "{good}");
        }
        for bad in [
            "*",
            "null",
            "https://app.example/",
            "https://app.example:443",
            "app.example",
            "ftp://a.example",
        ] {
            assert!(!is_origin(bad), "{bad}");
        }
    }
}
