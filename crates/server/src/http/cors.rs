//! Browsers: which pages may use end users' tokens and publishable keys (Fetch standard, section 3.3).
//!
//! A preflight carries no credential, so it is answered for every origin that some workspace allows. The request
//! itself is refused when its workspace does not allow the origin, and only then has the answer the header that
//! lets the page read it. Cookies play no part, so credentials are never allowed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use turnpike_app::{Actor, ActorCredential, AppError};
use turnpike_core::access::KeyKind;
use turnpike_core::errors::ErrorCode;
use turnpike_store::Store;

use super::problem::ApiError;

/// How long a browser may remember a preflight's answer, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, DELETE");

/// The origins that some workspace allows.
#[derive(Default)]
pub(crate) struct Origins(RwLock<Arc<BTreeSet<String>>>);

impl Origins {
    /// Reads them again.
    pub(crate) async fn refresh(&self, store: &dyn Store) -> Result<(), AppError> {
        let tenants = store.list_tenants().await?;
        let known = tenants
            .into_iter()
            .flat_map(|tenant| tenant.settings.allowed_origins)
            .collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
        Ok(())
    }

    fn allows(&self, origin: &str) -> bool {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(origin)
    }
}

/// Set when the caller's workspace allows the page that asks.
#[derive(Clone, Default)]
pub(super) struct Grant(Arc<AtomicBool>);

impl Grant {
    /// One that is given already.
    pub(super) fn given() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// Lets the page at `origin` read the answer.
    pub(super) fn open(&self, origins: &Origins, origin: Option<&HeaderValue>, response: &mut Response) {
        if let Some(origin) = origin
            && (self.0.load(Ordering::Acquire) || is_refusal(origins, origin, response))
        {
            let headers = response.headers_mut();
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(
                header::ACCESS_CONTROL_EXPOSE_HEADERS,
                HeaderValue::from_static("*"),
            );
            headers.append(header::VARY, HeaderValue::from_static("origin"));
        }
    }
}

/// A 401 tells nothing but that a new token is needed: a page that some workspace allows may read it.
fn is_refusal(origins: &Origins, origin: &HeaderValue, response: &Response) -> bool {
    response.status() == StatusCode::UNAUTHORIZED
        && origin.to_str().is_ok_and(|origin| origins.allows(origin))
}

/// Refuses a browser's credential from a page that its workspace does not allow.
///
/// # Errors
/// `CREDENTIAL_KIND_NOT_ALLOWED`.
pub(super) fn check(parts: &Parts, actor: &Actor) -> Result<(), ApiError> {
    let for_browsers = match &actor.credential {
        ActorCredential::EndUser(_) => true,
        ActorCredential::Key(key) => key.kind == KeyKind::Publishable,
        ActorCredential::Member { .. } | ActorCredential::Agent(_) => false,
    };
    let Some(origin) = parts.headers.get(header::ORIGIN).filter(|_| for_browsers) else {
        return Ok(());
    };
    let allowed = &actor.tenant.settings.allowed_origins;
    if !origin
        .to_str()
        .is_ok_and(|origin| allowed.iter().any(|allowed| allowed == origin))
    {
        return Err(ApiError::new(
            ErrorCode::CredentialKindNotAllowed,
            "this page's origin is not on the workspace's list of allowed origins",
        ));
    }
    if let Some(Grant(open)) = parts.extensions.get::<Grant>() {
        open.store(true, Ordering::Release);
    }
    Ok(())
}

/// Whether every page may ask this path: neither a payment nor a code is a credential that a browser would send by
/// itself.
pub(super) fn is_open(path: &str) -> bool {
    path.starts_with("/vendor/") || super::oauth::is_open(path)
}

/// The answer to a preflight; `None` = the request is none.
pub(super) fn preflight(origins: &Origins, request: &Request) -> Option<Response> {
    let (method, headers) = (request.method(), request.headers());
    let origin = headers.get(header::ORIGIN)?;
    if method != Method::OPTIONS || !headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
        return None;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let answer = response.headers_mut();
    answer.insert(header::VARY, HeaderValue::from_static("origin"));
    let known = origin.to_str().is_ok_and(|origin| origins.allows(origin));
    if !known && !is_open(request.uri().path()) {
        return Some(response);
    }
    answer.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    // SDKs send headers of their own; what they mean is checked where they are read.
    if let Some(names) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    Some(response)
}

/// The page that asks, if it is a page.
pub(super) fn origin(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(header::ORIGIN).cloned()
}
