//! Requests for agent connections (decisions, section 6).

use turnpike_core::access::AgentScope;
use turnpike_core::ids::ExternalUserId;
use turnpike_core::ledger::Payer;

use super::{AgentLimits, LIFETIME_SECS};
use crate::error::AppError;
use crate::fields::Fields;

/// Most characters of a name.
pub(crate) const MAX_NAME: usize = 100;
const MEMBERS: [&str; 7] = [
    "externalUserId",
    "name",
    "scopes",
    "tools",
    "maxUsd",
    "maxUsdPerCall",
    "expiresIn",
];

/// A connection that somebody wants.
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) payer: Payer,
    pub(super) scopes: Vec<AgentScope>,
    pub(super) limits: AgentLimits,
    pub(super) lifetime_secs: i64,
}

impl Wanted {
    /// Reads a body.
    ///
    /// # Errors
    /// `UNKNOWN_FIELD`, `VALIDATION_ERROR`.
    pub(super) fn parse(raw: &[u8]) -> Result<Self, AppError> {
        let mut fields = Fields::parse(raw, &MEMBERS)?;
        let tools = match fields.section("tools", &["enable"])? {
            None => None,
            Some(mut tools) => tools.slugs("enable")?,
        };
        Ok(Self {
            payer: payer(fields.text("externalUserId")?.as_deref())?,
            name: fields.required("name", |fields, name| fields.words(name, 1..=MAX_NAME))?,
            scopes: scopes(&mut fields)?,
            limits: AgentLimits {
                max_spend: fields.usd("maxUsd")?,
                max_per_call: fields.usd("maxUsdPerCall")?,
                tools,
            },
            lifetime_secs: fields
                .required("expiresIn", |fields, name| fields.integer(name, LIFETIME_SECS))?,
        })
    }
}

/// The end user, or the pool where none is named.
pub(crate) fn payer(external_user_id: Option<&str>) -> Result<Payer, AppError> {
    let Some(text) = external_user_id else {
        return Ok(Payer::Pool);
    };
    ExternalUserId::parse(text)
        .map(Payer::EndUser)
        .map_err(|error| AppError::invalid("externalUserId", error.to_string()))
}

/// At least one scope, none twice.
fn scopes(fields: &mut Fields) -> Result<Vec<AgentScope>, AppError> {
    let wrong = || AppError::invalid("scopes", "must be mcp:read, mcp:execute or both, none twice");
    let names = fields.required("scopes", |fields, name| fields.texts(name, AgentScope::ALL.len()))?;
    let mut scopes = Vec::new();
    for name in &names {
        let scope = AgentScope::parse(name).filter(|scope| !scopes.contains(scope));
        scopes.push(scope.ok_or_else(wrong)?);
    }
    if scopes.is_empty() {
        return Err(wrong());
    }
    scopes.sort_unstable();
    Ok(scopes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_connection_shall_be_is_checked() {
        let with = |more: &str| {
            let body = format!(r#"{{"name":"n","scopes":["mcp:read"],"expiresIn":300{more}}}"#);
            Wanted::parse(body.as_bytes())
        };
        assert_eq!(with("").unwrap().payer, Payer::Pool);
        let whole = r#","externalUserId":"u","tools":{"enable":["a/*"]},"maxUsd":"1","maxUsdPerCall":"0.1""#;
        assert!(with(whole).is_ok());
        for bad in [
            r#","externalUserId":"""#,
            r#","maxUsd":1"#,
            r#","maxUsd":"-1""#,
            r#","tools":["a/b"]"#,
            r#","tools":{"enable":["x"]}"#,
            r#","more":1"#,
        ] {
            assert!(with(bad).is_err(), "{bad}");
        }
        for bad in [
            "{}",
            r#"{"name":"","scopes":["mcp:read"],"expiresIn":300}"#,
            r#"{"name":"n","scopes":[],"expiresIn":300}"#,
            r#"{"name":"n","scopes":["mcp:read","mcp:read"],"expiresIn":300}"#,
            r#"{"name":"n","scopes":["offline_access"],"expiresIn":300}"#,
            r#"{"name":"n","scopes":["mcp:read"],"expiresIn":299}"#,
            r#"{"name":"n","scopes":["mcp:read"],"expiresIn":31536001}"#,
            r#"{"name":"n","scopes":["mcp:read"]}"#,
        ] {
            assert!(Wanted::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
