//! The addresses a customer is sent to after a checkout: no open redirects.

use std::net::IpAddr;
use std::sync::Arc;

use url::{Host, Url};

use crate::error::AppError;

/// Longest address, in characters (specification 2.7).
const MAX_URL_CHARS: usize = 2048;
/// Stands for the session's id in an address.
const PLACEHOLDER: &str = "{CHECKOUT_SESSION_ID}";

/// Checks an address of a request and puts the session's id where it is asked for.
///
/// # Errors
/// `VALIDATION_ERROR`.
pub(crate) fn checked(
    name: &str,
    text: Option<&str>,
    session: &str,
    hosts: &[String],
) -> Result<Option<Arc<str>>, AppError> {
    let Some(text) = text else { return Ok(None) };
    let refuse = |message: &str| Err(AppError::invalid(name, message));
    if text.chars().count() > MAX_URL_CHARS {
        return refuse("must be at most 2048 characters");
    }
    // What a browser would read differently than this parser is refused, not repaired.
    if !text.is_ascii()
        || text
            .bytes()
            .any(|byte| byte.is_ascii_control() || byte == b' ' || byte == b'\\')
    {
        return refuse("must be an absolute URL in ASCII without spaces, control characters or backslashes");
    }
    let Ok(url) = Url::parse(&text.replace(PLACEHOLDER, session)) else {
        return refuse("must be an absolute URL");
    };
    let Some(host) = url.host() else {
        return refuse("must name a host");
    };
    // A host may hold characters that mean something where it is repeated, such as `;` in a policy.
    if let Host::Domain(name) = &host
        && !name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
    {
        return refuse("its host has characters that no host name has");
    }
    let secure = url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&host));
    if !secure || !text.to_ascii_lowercase().starts_with("http") {
        return refuse("must be https (http for loopback addresses only)");
    }
    if !url.username().is_empty() || url.password().is_some() || has_user_info(text) {
        return refuse("must not have a user name");
    }
    let host = host.to_string();
    if !hosts.is_empty() && !hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(&host)) {
        return refuse("its host is not on this workspace's list");
    }
    Ok(Some(url.as_str().into()))
}

/// Whether there is an `@` before the path, even with an empty name.
fn has_user_info(text: &str) -> bool {
    text.split_once("//")
        .map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default())
        .is_some_and(|authority| authority.contains('@'))
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost",
        Host::Ipv4(address) => IpAddr::V4(*address).is_loopback(),
        Host::Ipv6(address) => IpAddr::V6(*address).is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, hosts: &[&str]) -> Option<String> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        checked("successUrl", Some(text), "cs_1", &hosts)
            .ok()
            .flatten()
            .map(|url| url.to_string())
    }

    // Fault matrix 104
    #[test]
    fn addresses_that_lead_astray_are_refused() {
        for bad in [
            "javascript:alert(1)",
            "data:text/html,hi",
            "//evil.example/x",
            "/relative",
            "https://ok.example@evil.example/",
            "https://@evil.example/",
            "https://ok.example\\@evil.example/",
            "https://ok.example/\r\nSet-Cookie: a=b",
            "http://ok.example/",
            "ftp://ok.example/",
            "https://пример.example/",
            "https://",
            " https://ok.example/",
            "",
            "https:///",
            "https://ok.example;sandbox/",
            "https://ok.example,evil.example/",
            "https://ok.example'/",
        ] {
            assert_eq!(check(bad, &[]), None, "{bad:?}");
        }
        assert!(check(&format!("https://a.example/{}", "x".repeat(2030)), &[]).is_some());
        assert!(check(&format!("https://a.example/{}", "x".repeat(2031)), &[]).is_none());
    }

    #[test]
    fn good_addresses_get_the_session() {
        assert_eq!(
            check("https://shop.example/done?s={CHECKOUT_SESSION_ID}", &[]).unwrap(),
            "https://shop.example/done?s=cs_1"
        );
        for good in [
            "http://localhost:3000/",
            "http://127.0.0.1/x",
            "http://[::1]:8080/",
        ] {
            assert!(check(good, &[]).is_some(), "{good}");
        }
        assert!(check("https://Shop.example/", &["shop.example"]).is_some());
        assert!(check("https://shop.example.evil.example/", &["shop.example"]).is_none());
    }
}
