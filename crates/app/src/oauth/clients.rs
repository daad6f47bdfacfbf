//! Clients register by themselves (RFC 7591). All of them are public: they hold no secret.

use serde_json::{Value, json};
use turnpike_core::oauth::OAuthErrorCode;
use turnpike_core::time::Timestamp;
use turnpike_store::OAuthClient;

use super::redirect::objection;
use super::{OAuthDesk, OAuthError, scopes};
use crate::json::parse_object;

const MAX_URIS: usize = 10;
const MAX_NAME: usize = 100;
/// How long a registration is kept that nobody agreed to anything for.
const UNUSED_MS: i64 = 24 * 3_600_000;
/// What it is kept beyond the connections that were made with it.
pub(super) const KEPT_MS: i64 = 30 * 86_400_000;

/// What a client says of itself.
struct Metadata {
    name: String,
    redirect_uris: Vec<String>,
}

fn parse(raw: &[u8]) -> Result<Metadata, OAuthError> {
    let metadata = |text: &str| OAuthError::new(OAuthErrorCode::InvalidClientMetadata, text);
    let redirects = |text: &str| OAuthError::new(OAuthErrorCode::InvalidRedirectUri, text);
    let members = parse_object(raw).map_err(|error| metadata(&error.message))?;
    let wrong = || redirects("redirect_uris must be an array of 1 to 10 strings");
    let uris = members
        .get("redirect_uris")
        .and_then(Value::as_array)
        .ok_or_else(wrong)?;
    if !(1..=MAX_URIS).contains(&uris.len()) {
        return Err(wrong());
    }
    let mut redirect_uris = Vec::with_capacity(uris.len());
    for uri in uris {
        let uri = uri.as_str().ok_or_else(wrong)?;
        if let Some(message) = objection(uri) {
            return Err(redirects(message));
        }
        redirect_uris.push(uri.to_owned());
    }
    let name = match members.get("client_name") {
        None => "An agent without a name",
        Some(name) => name
            .as_str()
            .ok_or_else(|| metadata("client_name must be a string"))?,
    };
    let length = name.chars().count();
    if !(1..=MAX_NAME).contains(&length) || name.chars().any(is_misleading) {
        return Err(metadata(
            "client_name must be 1 to 100 characters without control characters",
        ));
    }
    for (member, known) in [
        ("grant_types", &["authorization_code", "refresh_token"][..]),
        ("response_types", &["code"]),
    ] {
        check_names(member, members.get(member), known).map_err(|text| metadata(&text))?;
    }
    Ok(Metadata {
        name: name.to_owned(),
        redirect_uris,
    })
}

/// Control characters, and those that turn the direction of the text around them.
fn is_misleading(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// What a client wants beside what there is, it does not get; of what there is it must want the first.
fn check_names(member: &str, value: Option<&Value>, known: &[&str]) -> Result<(), String> {
    let Some(value) = value else { return Ok(()) };
    let names: Option<Vec<&str>> = value
        .as_array()
        .filter(|names| names.len() <= MAX_URIS)
        .and_then(|names| names.iter().map(Value::as_str).collect());
    match (names, known.first()) {
        (Some(names), Some(first)) if names.contains(first) => Ok(()),
        _ => Err(format!("{member} must be an array with {}", known.join(" and "))),
    }
}

impl OAuthDesk {
    /// Registers a client.
    ///
    /// # Errors
    /// `invalid_redirect_uri`, `invalid_client_metadata`.
    pub async fn register(&self, raw: &[u8]) -> Result<Value, OAuthError> {
        let metadata = parse(raw)?;
        let now = self.now();
        let random = self.environment.random_32();
        let client = OAuthClient {
            id: hex::encode(random.get(..16).unwrap_or_default()),
            name: metadata.name,
            redirect_uris: metadata.redirect_uris,
            created_at: now,
            expires_at: now.plus_millis(UNUSED_MS),
        };
        self.store.insert_client(&client).await?;
        Ok(json!({
            "client_id": client.id,
            "client_id_issued_at": now.millis().div_euclid(1000),
            "client_name": client.name,
            "redirect_uris": client.redirect_uris,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "scope": scopes().join(" "),
        }))
    }

    /// A registered client.
    pub(super) async fn client(&self, id: &str) -> Result<Option<OAuthClient>, OAuthError> {
        if id.is_empty() || id.len() > 64 || id.contains('\0') {
            return Ok(None);
        }
        Ok(self.store.find_client(id, self.now()).await?)
    }

    /// Keeps a client for as long as its connection lives, and a while longer.
    pub(super) async fn keep(&self, client: &str, until: Timestamp) -> Result<(), OAuthError> {
        let until = until.plus_millis(KEPT_MS);
        Ok(self.store.keep_client(client, until).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_of_itself_is_bounded() {
        let with =
            |more: &str| parse(format!(r#"{{"redirect_uris":["https://a.example/cb"]{more}}}"#).as_bytes());
        for good in [
            "",
            r#","client_name":"Claude","token_endpoint_auth_method":"client_secret_post","software_id":"x""#,
            r#","grant_types":["authorization_code","refresh_token","implicit"],"response_types":["code"]"#,
        ] {
            assert!(with(good).is_ok(), "{good}");
        }
        let long = format!(r#","client_name":"{}""#, "x".repeat(101));
        for bad in [
            r#","client_name":"""#,
            r#","client_name":7"#,
            ",\"client_name\":\"a\u{202E}b\"",
            &long,
            r#","grant_types":["client_credentials"]"#,
            r#","response_types":"code""#,
        ] {
            assert!(with(bad).is_err(), "{bad}");
        }
        let many = format!(
            r#"{{"redirect_uris":["{}"]}}"#,
            ["https://a.example/"; 11].join("\",\"")
        );
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"redirect_uris":[]}"#,
            r#"{"redirect_uris":"https://a.example/"}"#,
            r#"{"redirect_uris":["http://a.example/"]}"#,
            r#"{"redirect_uris":["javascript:x"]}"#,
            &many,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
