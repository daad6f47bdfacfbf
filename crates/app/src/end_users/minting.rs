//! Tokens for end users: given out by the workspace's own server, and taken back.

use std::sync::Arc;

use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{ExternalUserId, TokenId};
use turnpike_core::ledger::command::{NewToken, RevokeTokens};
use turnpike_core::ledger::token::{EndUserToken, TokenKind};
use turnpike_core::ledger::{Action, Outcome, Payer};
use turnpike_core::money::Micros;
use turnpike_core::time::Timestamp;

use super::{EndUserDesk, Note, unexpected};
use crate::auth::{Actor, ActorCredential};
use crate::error::AppError;
use crate::fields::Fields;
use crate::limits::LimitClass;
use crate::tokens::{
    EndUserClaims, MAX_LIFETIME_SECS, MIN_LIFETIME_SECS, TokenScope, is_session_id, session_fingerprint,
};

/// How long a token lives unless its request says otherwise.
const DEFAULT_LIFETIME_SECS: i64 = 900;
const MEMBERS: [&str; 5] = ["expiresIn", "sessionId", "scopes", "maxSpendUsd", "tools"];
const SCOPES: [TokenScope; 3] = [TokenScope::Spend, TokenScope::Topup, TokenScope::Read];

/// What a token shall be.
struct Wanted {
    lifetime_secs: i64,
    /// Fingerprint of the session.
    session: Option<String>,
    scopes: Vec<TokenScope>,
    max_spend: Option<Micros>,
    tools: Option<Vec<String>>,
}

fn parse(raw: &[u8]) -> Result<Wanted, AppError> {
    let mut fields = Fields::parse(raw, &MEMBERS)?;
    let lifetime_secs = fields
        .integer("expiresIn", MIN_LIFETIME_SECS..=MAX_LIFETIME_SECS)?
        .unwrap_or(DEFAULT_LIFETIME_SECS);
    let session = fields.text("sessionId")?;
    if !session.as_deref().is_none_or(is_session_id) {
        let message = "must be 16 to 128 characters of A-Z a-z 0-9 . _ : - that begin with a letter or digit";
        return Err(AppError::invalid("sessionId", message));
    }
    Ok(Wanted {
        lifetime_secs,
        session: session.as_deref().map(session_fingerprint),
        scopes: scopes(&mut fields)?,
        max_spend: fields.usd("maxSpendUsd")?,
        tools: fields.slugs("tools")?,
    })
}

/// At least one scope, none twice; absent = all.
fn scopes(fields: &mut Fields) -> Result<Vec<TokenScope>, AppError> {
    let wrong = || AppError::invalid("scopes", "must be some of spend, topup, read, none twice");
    let Some(names) = fields.texts("scopes", SCOPES.len())? else {
        return Ok(SCOPES.to_vec());
    };
    let mut scopes = Vec::new();
    for name in &names {
        let scope = SCOPES.into_iter().find(|scope| scope.as_str() == name);
        let scope = scope.filter(|scope| !scopes.contains(scope)).ok_or_else(wrong)?;
        scopes.push(scope);
    }
    if scopes.is_empty() {
        return Err(wrong());
    }
    scopes.sort_unstable();
    Ok(scopes)
}

/// The tools of a token by a key that is narrowed itself: the key's own, or fewer.
pub(crate) fn narrowed(actor: &Actor, wanted: Option<Vec<String>>) -> Result<Option<Vec<String>>, AppError> {
    let own = match &actor.credential {
        ActorCredential::Key(key) => key.tools.clone(),
        ActorCredential::Member { .. } | ActorCredential::EndUser(_) | ActorCredential::Agent(_) => None,
    };
    let (own, wanted) = match (own, wanted) {
        (None, wanted) => return Ok(wanted),
        (own, None) => return Ok(own),
        (Some(own), Some(wanted)) => (own, wanted),
    };
    let covered = |tool: &String| {
        let all = tool.split_once('/').map(|(provider, _)| format!("{provider}/*"));
        own.contains(tool) || all.is_some_and(|all| own.contains(&all))
    };
    match wanted.iter().find(|tool| !covered(tool)) {
        None => Ok(Some(wanted)),
        Some(tool) => Err(AppError::new(
            ErrorCode::EndpointDisabled,
            format!("{tool} is not enabled for this key"),
        )),
    }
}

impl EndUserDesk {
    /// Mints a token for an end user, who is created when unknown.
    ///
    /// # Errors
    /// `UNKNOWN_FIELD`, `VALIDATION_ERROR`, `RATE_LIMITED`, `TENANT_SUSPENDED`, `END_USER_RETIRED`.
    pub async fn mint(&self, actor: &Actor, id: &ExternalUserId, raw: &[u8]) -> Result<Value, AppError> {
        let mut wanted = parse(raw)?;
        wanted.tools = narrowed(actor, wanted.tools)?;
        let key = (actor.tenant.id, id.clone());
        self.mints
            .check(LimitClass::Mutation, &key)
            .map_err(|mut limited| {
                "too many tokens for this end user".clone_into(&mut limited.message);
                limited
            })?;
        let now = self.environment.now();
        let issued_at = now.millis().div_euclid(1000);
        let ends_at = issued_at.saturating_add(wanted.lifetime_secs);
        let expires_at = Timestamp::from_millis(ends_at.saturating_mul(1000));
        let jti = self.environment.new_id();
        let claims = EndUserClaims {
            iss: String::new(),
            aud: String::new(),
            sub: id.clone(),
            tid: actor.tenant.id,
            iat: issued_at,
            exp: ends_at,
            jti,
            sid: wanted.session.clone(),
            scp: wanted.scopes.clone(),
        };
        let token = self.vault.mint(&claims)?;
        let session_bound = wanted.session.is_some();
        let note = Note::new("token.mint", id.as_str()).after(&json!({
            "jti": jti, "expiresAt": expires_at, "scopes": wanted.scopes, "sessionBound": session_bound,
            "maxSpendUsd": wanted.max_spend, "tools": wanted.tools,
        }));
        let row = NewToken {
            id: TokenId(jti),
            token: EndUserToken {
                kind: TokenKind::EndUser,
                owner: Payer::EndUser(id.clone()),
                created_at: now,
                expires_at,
                revoked_at: None,
                max_spend: wanted.max_spend,
                max_per_call: None,
                spent: Micros::ZERO,
                tools: wanted.tools.map(Arc::from),
            },
        };
        // Only a token with a row works, so what is not committed was never given out.
        let done = self.submit(actor, Action::MintToken(Box::new(row)), note).await?;
        let Outcome::Minted = done else {
            return Err(unexpected(&done));
        };
        Ok(json!({
            "success": true, "token": token, "tokenType": "Bearer", "expiresAt": expires_at,
            "externalUserId": id, "jti": jti, "sessionBound": session_bound,
        }))
    }

    /// Revokes one of an end user's tokens, or all of them; says how many worked until now.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`, `TENANT_SUSPENDED`, `END_USER_NOT_FOUND`.
    pub async fn revoke(
        &self,
        actor: &Actor,
        id: &ExternalUserId,
        only: Option<&str>,
    ) -> Result<u64, AppError> {
        let only = only
            .map(str::parse::<TokenId>)
            .transpose()
            .map_err(|_invalid| AppError::invalid("jti", "must be a UUID"))?;
        let revoke = RevokeTokens {
            kind: TokenKind::EndUser,
            owner: Payer::EndUser(id.clone()),
            only,
        };
        let note = Note::new("token.revoke", id.as_str()).after(&json!({ "jti": only }));
        let done = self.submit(actor, Action::RevokeTokens(revoke), note).await?;
        let Outcome::Revoked(count) = done else {
            return Err(unexpected(&done));
        };
        Ok(count)
    }

    /// Who presents a token, and where that end user stands.
    ///
    /// # Errors
    /// `CREDENTIAL_KIND_NOT_ALLOWED`, `INSUFFICIENT_SCOPE`, `END_USER_NOT_FOUND`.
    pub async fn me(&self, actor: &Actor) -> Result<Value, AppError> {
        let session = actor.require_end_user(TokenScope::Read)?;
        let user = self.find(actor, &session.id).await?;
        let account = self.account(actor, &session.id).await?;
        let status = super::status(&user, account.status);
        Ok(json!({ "success": true, "externalUserId": session.id, "status": status }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Fault matrix 125, 126
    #[test]
    fn what_a_token_shall_be_is_checked() {
        let default = parse(b"").unwrap();
        assert_eq!((default.lifetime_secs, default.scopes.len()), (900, 3));
        for good in [
            r#"{"expiresIn":60}"#,
            r#"{"expiresIn":3600,"sessionId":"s234567890123456"}"#,
            r#"{"scopes":["read"],"maxSpendUsd":"0","tools":[]}"#,
        ] {
            assert!(parse(good.as_bytes()).is_ok(), "{good}");
        }
        let long = format!(r#"{{"sessionId":"{}"}}"#, "s".repeat(129));
        for bad in [
            r#"{"expiresIn":59}"#,
            r#"{"expiresIn":3601}"#,
            r#"{"expiresIn":"60"}"#,
            r#"{"expiresIn":60.5}"#,
            r#"{"sessionId":"s23456789012345"}"#,
            r#"{"sessionId":"s2345678901234 6"}"#,
            r#"{"sessionId":null}"#,
            r#"{"scopes":[]}"#,
            r#"{"scopes":["read","read"]}"#,
            r#"{"scopes":["admin"]}"#,
            r#"{"scopes":"read"}"#,
            r#"{"maxSpendUsd":"-1"}"#,
            r#"{"tools":["x"]}"#,
            r#"{"ttl":60}"#,
            &long,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
