//! Redirect URIs: what may be registered, and which of them a request means (RFC 8252, RFC 9700 section 4.1).

use url::{Host, Url};

/// Longest redirect URI in bytes.
const MAX_URI: usize = 2048;
/// Schemes that a browser acts on by itself.
const NEVER: [&str; 10] = [
    "javascript",
    "data",
    "vbscript",
    "file",
    "blob",
    "about",
    "ftp",
    "ws",
    "wss",
    "view-source",
];

/// Why `text` cannot be a redirect URI; `None` = it can: https, http to this machine, or a private-use scheme.
pub(super) fn objection(text: &str) -> Option<&'static str> {
    if text.len() > MAX_URI {
        return Some("a redirect URI must be at most 2048 bytes");
    }
    // What a browser would read differently than this parser is refused, not repaired.
    let odd = |byte: u8| !byte.is_ascii_graphic() || b"\\<>\"`{}|^".contains(&byte);
    if text.bytes().any(odd) {
        return Some("a redirect URI must be ASCII without spaces, quotes, brackets and backslashes");
    }
    if text.contains('#') {
        return Some("a redirect URI must have no fragment");
    }
    let Ok(url) = Url::parse(text) else {
        return Some("a redirect URI must be absolute");
    };
    match url.scheme() {
        "https" | "http" => of_the_web(&url),
        scheme if NEVER.contains(&scheme) => Some("this scheme cannot be redirected to"),
        _ => None,
    }
}

fn of_the_web(url: &Url) -> Option<&'static str> {
    if !url.username().is_empty() || url.password().is_some() || url.as_str().contains("//@") {
        return Some("a redirect URI must have no user name");
    }
    // A host may hold characters that mean something where it is repeated, such as `;` in a policy.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    if !url.host_str().is_some_and(|host| host.bytes().all(plain)) {
        return Some("a redirect URI must name a host");
    }
    if url.scheme() == "http" && !is_loopback(url) {
        return Some("a redirect URI must be https; http is for this machine's own addresses");
    }
    None
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Whether `asked` is `registered`: the same text, or on this machine the same but for the port (RFC 8252, section 7.3).
pub(super) fn is_same(registered: &str, asked: &str) -> bool {
    if registered == asked {
        return objection(asked).is_none();
    }
    let (Ok(mut one), Ok(mut two)) = (Url::parse(registered), Url::parse(asked)) else {
        return false;
    };
    if one.scheme() != "http" || !is_loopback(&one) || objection(asked).is_some() {
        return false;
    }
    one.set_port(None).is_ok() && two.set_port(None).is_ok() && one == two
}

/// `uri` with `members` in its query, behind what is there already.
pub(super) fn with_query(uri: &str, members: &[(&str, &str)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(members);
    let sign = match uri.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some(_) => "&",
    };
    format!("{uri}{sign}{}", query.finish())
}

/// Where an answer goes, as people are told: the host, or the scheme of an app on their device.
pub(super) fn destination(uri: &str) -> String {
    let Ok(url) = Url::parse(uri) else {
        return uri.to_owned();
    };
    match (url.scheme(), url.host_str()) {
        ("https" | "http", Some(host)) if is_loopback(&url) => format!("this computer ({host})"),
        ("https" | "http", Some(host)) => host.to_owned(),
        (scheme, _) => format!("an app on this device ({scheme}:)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_astray_cannot_be_registered() {
        for good in [
            "https://claude.ai/api/mcp/auth_callback",
            "http://127.0.0.1:33418/",
            "http://localhost/callback",
            "http://[::1]:9/cb?a=b",
            "cursor://anysphere.cursor-retrieval/oauth/callback",
            "com.example.app:/oauth",
        ] {
            assert_eq!(objection(good), None, "{good}");
        }
        for bad in [
            "",
            "/callback",
            "//evil.example/x",
            "javascript:alert(1)",
            "data:text/html,hi",
            "http://evil.example/cb",
            "http://127.0.0.1.evil.example/",
            "https://user@evil.example/",
            "https://ok.example\\@evil.example/",
            "https://ok.example/#fragment",
            "https://ok.example/\r\nx",
            "https://ok.example;x/",
            "https://exämple.org/",
            "https://",
        ] {
            assert!(objection(bad).is_some(), "{bad}");
        }
        assert!(objection(&format!("https://a.example/{}", "x".repeat(2048))).is_some());
    }

    #[test]
    fn only_the_port_on_this_machine_may_differ() {
        let local = "http://127.0.0.1:1/cb";
        for same in [local, "http://127.0.0.1:65535/cb", "http://127.0.0.1/cb"] {
            assert!(is_same(local, same), "{same}");
        }
        for other in [
            "http://127.0.0.1:1/cb2",
            "http://127.0.0.1:1/cb?x=1",
            "http://localhost:1/cb",
            "https://127.0.0.1:1/cb",
            "http://evil@127.0.0.1:1/cb",
        ] {
            assert!(!is_same(local, other), "{other}");
        }
        let web = "https://app.example/cb";
        assert!(is_same(web, web));
        for other in [
            "https://app.example:8443/cb",
            "https://app.example/cb/",
            "https://app.example/CB",
            "https://app.example/cb?x",
        ] {
            assert!(!is_same(web, other), "{other}");
        }
    }

    #[test]
    fn answers_are_added_to_the_query() {
        let members = [("code", "a b"), ("state", "&x=1")];
        let added = "code=a+b&state=%26x%3D1";
        for (uri, begins) in [
            ("https://a.example/cb", "https://a.example/cb?"),
            ("https://a.example/cb?x=1", "https://a.example/cb?x=1&"),
            ("com.example:/cb", "com.example:/cb?"),
        ] {
            assert_eq!(with_query(uri, &members), format!("{begins}{added}"));
        }
    }
}
