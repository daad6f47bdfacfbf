//! The session of the identity pages: a cookie that carries the dashboard session, and where forms may come from.
//!
//! The cookie counts for the pages alone; the API takes bearer credentials only. Over TLS its name keeps neighbouring
//! hosts from setting it (RFC 6265bis, section 4.1.3.2), for which it has to be sent to every path.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use turnpike_app::AppError;
use turnpike_app::people::SignedIn;
use turnpike_app::sessions::{NewSession, Session};

use super::App;

/// Its name and attributes on the machine itself, without TLS, and elsewhere.
const PLAIN: (&str, &str) = ("turnpike_session", "Path=/");
const SECURE: (&str, &str) = ("__Host-turnpike_session", "Path=/; Secure");
/// As long as the session that it carries.
const MAX_AGE_SECS: i64 = 12 * 3600;
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Somebody who is signed in at the pages.
pub(super) struct Visitor {
    pub(super) session: Session,
    /// The session as the API takes it.
    pub(super) token: String,
}

/// The dashboard session of who has shown a password and a second factor at `signed_in.at`.
///
/// # Errors
/// `INTERNAL` when another identity provider signs the sessions; it has no such pages.
pub(super) fn session_token(app: &App, signed_in: &SignedIn) -> Result<String, AppError> {
    let signer = app.service.signer.as_ref();
    let signer = signer.ok_or_else(|| AppError::internal(&"another provider signs the sessions"))?;
    signer.sign(&NewSession {
        subject: &signed_in.subject,
        auth_time: signed_in.at,
        amr: &["pwd", "otp"],
        issued_at: signed_in.at,
        lifetime_secs: MAX_AGE_SECS,
    })
}

/// Who is signed in, if anybody is.
///
/// # Errors
/// When the store does not answer.
pub(super) async fn visitor(app: &App, headers: &HeaderMap) -> Result<Option<Visitor>, AppError> {
    let Some(token) = cookie(headers, &app.service.config.server.public_url) else {
        return Ok(None);
    };
    match app.service.sessions.authenticate(&token).await {
        Ok(session) => Ok(Some(Visitor { session, token })),
        Err(error) if error.code.status() < 500 => Ok(None),
        Err(error) => Err(error),
    }
}

const fn kind(is_local: bool) -> (&'static str, &'static str) {
    if is_local { PLAIN } else { SECURE }
}

/// What the cookie carries; of two of its name, somebody else has set one, and neither counts.
fn cookie(headers: &HeaderMap, public_url: &str) -> Option<String> {
    let (wanted, _) = kind(is_local_http(public_url));
    let mut found = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == wanted);
    let (_, token) = found.next()?;
    found.next().is_none().then(|| token.to_owned())
}

/// The header that gives a visitor the session `token`.
pub(super) fn given(public_url: &str, token: &str) -> Option<HeaderValue> {
    set_cookie(public_url, token, MAX_AGE_SECS)
}

/// The header that takes the session away.
pub(super) fn taken(public_url: &str) -> Option<HeaderValue> {
    set_cookie(public_url, "", 0)
}

fn set_cookie(public_url: &str, value: &str, max_age_secs: i64) -> Option<HeaderValue> {
    let (name, attributes) = kind(is_local_http(public_url));
    let cookie = format!("{name}={value}; {attributes}; Max-Age={max_age_secs}; HttpOnly; SameSite=Strict");
    let mut cookie = HeaderValue::try_from(cookie).ok()?;
    cookie.set_sensitive(true);
    Some(cookie)
}

/// Whether the service is reached without TLS, on the machine itself.
fn is_local_http(public_url: &str) -> bool {
    let Ok(uri) = public_url.parse::<Uri>() else {
        return false;
    };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let address = host.parse::<std::net::IpAddr>();
    uri.scheme_str() == Some("http")
        && (host == "localhost" || address.is_ok_and(|address| address.is_loopback()))
}

/// Whether a form was sent from one of our own pages.
///
/// Browsers say so in `Sec-Fetch-Site`, older ones in `Origin`. What says neither is no form of ours.
pub(super) fn is_from_ourselves(parts: &Parts, public_url: &str) -> bool {
    let text = |name: &HeaderName| {
        let mut values = parts.headers.get_all(name).iter();
        let first = values.next().map(|value| value.to_str().unwrap_or_default());
        (values.next().is_none(), first)
    };
    if let (once, Some(site)) = text(&FETCH_SITE) {
        return once && site == "same-origin";
    }
    let (once, Some(origin)) = text(&header::ORIGIN) else {
        return false;
    };
    let Ok(origin) = origin.parse::<Uri>() else {
        return false;
    };
    let ours = public_url.parse::<Uri>().ok();
    let same_url =
        ours.is_some_and(|ours| (ours.scheme(), ours.authority()) == (origin.scheme(), origin.authority()));
    let host = text(&header::HOST)
        .1
        .or(parts.uri.authority().map(http::uri::Authority::as_str));
    let same_host =
        origin.authority().is_some() && origin.authority().map(http::uri::Authority::as_str) == host;
    once && (same_url || same_host)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri("/identity/sign-in");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_form_counts_when_it_comes_from_our_own_pages() {
        let url = "https://pay.example";
        for good in [
            &[("sec-fetch-site", "same-origin"), ("origin", "null")][..],
            &[("origin", "https://pay.example")],
            &[("origin", "http://127.0.0.1:8402"), ("host", "127.0.0.1:8402")],
        ] {
            assert!(is_from_ourselves(&parts(good), url), "{good:?}");
        }
        for bad in [
            &[][..],
            &[("host", "pay.example")],
            &[
                ("sec-fetch-site", "cross-site"),
                ("origin", "https://pay.example"),
            ],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "none")],
            &[
                ("sec-fetch-site", "same-origin"),
                ("sec-fetch-site", "same-origin"),
            ],
            &[("origin", "null"), ("host", "pay.example")],
            &[("origin", "https://evil.example"), ("host", "pay.example")],
            &[("origin", "http://pay.example")],
            &[("origin", "")],
        ] {
            assert!(!is_from_ourselves(&parts(bad), url), "{bad:?}");
        }
    }

    #[test]
    fn the_cookie_is_secure_but_on_the_machine_itself() {
        for (url, secure) in [
            ("https://pay.example", true),
            ("http://pay.example", true),
            ("https://127.0.0.1", true),
            ("http://127.0.0.1:8402", false),
            ("http://[::1]:8402", false),
            ("http://localhost:8402", false),
        ] {
            let cookie = given(url, "x.y.z").unwrap();
            let text = cookie.to_str().unwrap();
            let begins = if secure {
                "__Host-turnpike_session=x.y.z; Path=/; Secure; Max-Age=43200; "
            } else {
                "turnpike_session=x.y.z; Path=/; Max-Age=43200; "
            };
            assert_eq!(text, format!("{begins}HttpOnly; SameSite=Strict"), "{url}");
            assert!(cookie.is_sensitive());
            let gone = taken(url).unwrap();
            assert!(gone.to_str().unwrap().contains("_session=; Path=/"), "{gone:?}");
        }
    }

    #[test]
    fn the_cookie_counts_once_and_by_the_name_of_its_place() {
        let (local, elsewhere) = ("http://127.0.0.1:8402", "https://pay.example");
        let headers = |values: &[&'static str]| {
            let value = |value: &&'static str| (header::COOKIE, HeaderValue::from_static(value));
            values.iter().map(value).collect::<HeaderMap>()
        };
        let plain = headers(&["a=b; turnpike_session=x.y.z; c=d"]);
        assert_eq!(cookie(&plain, local).as_deref(), Some("x.y.z"));
        assert_eq!(cookie(&plain, elsewhere), None);
        let secure = headers(&["turnpike_session=planted; __Host-turnpike_session=x.y.z"]);
        assert_eq!(cookie(&secure, elsewhere).as_deref(), Some("x.y.z"));
        for bad in [
            &["a_turnpike_session=x"][..],
            &["turnpike_session=x; turnpike_session=y"],
            &["turnpike_session=x", "turnpike_session=x"],
        ] {
            assert_eq!(cookie(&headers(bad), local), None, "{bad:?}");
        }
    }
}
