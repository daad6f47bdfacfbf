//! What a workspace's settings must look like before they are kept.

use turnpike_core::money::Micros;
use turnpike_store::TenantSettings;
use url::Url;

use crate::error::AppError;

/// Longest list of hosts or origins.
pub(super) const MAX_LIST: usize = 50;
/// Most prices of a level, and most rules of the catalogue.
pub(super) const MAX_RULES: usize = 1000;
/// Longest name of a provider, endpoint or model with its provider.
const MAX_NAME: usize = 512;

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
    let (pricing, catalog) = (&settings.pricing, &settings.catalog);
    for (path, names) in [
        ("pricing.endpoints", pricing.endpoints.keys().collect::<Vec<_>>()),
        ("catalog", catalog.keys().collect()),
    ] {
        if names.len() > MAX_RULES || !names.iter().all(|name| is_slug(name)) {
            let message = format!("must be at most {MAX_RULES} of provider/endpoint");
            return Err(AppError::invalid(path, message));
        }
    }
    let providers = &pricing.providers;
    if providers.len() > MAX_RULES || !providers.keys().all(|name| is_name(name) && !name.contains('/')) {
        let message = format!("must be at most {MAX_RULES} of provider ids");
        return Err(AppError::invalid("pricing.providers", message));
    }
    Ok(())
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_NAME && !text.chars().any(char::is_control)
}

/// A model's name may have anything in it.
fn is_slug(text: &str) -> bool {
    let parts = text.split_once('/');
    text.len() <= MAX_NAME && parts.is_some_and(|(provider, name)| is_name(provider) && is_name(name))
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
