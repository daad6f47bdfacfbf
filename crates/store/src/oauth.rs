//! The authorization server's clients, codes and tokens, with the SQL that both databases share.
//!
//! Codes and tokens are kept as keyed hashes only. What may happen once, a code that is redeemed or a refresh token that
//! is exchanged, is one conditional statement, in one transaction with what comes of it.

use async_trait::async_trait;
use turnpike_core::access::KeyHash;
use turnpike_core::ids::{TenantId, TokenId};
use turnpike_core::time::Timestamp;

use crate::agents::{self, AgentConnection, prune};
use crate::directory::{from_json, to_json};
use crate::error::StoreError;
use crate::rows;
use crate::sql::{Row, Sql, Statement, params};

/// A registered client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuthClient {
    /// Its id.
    pub id: String,
    /// What it calls itself.
    pub name: String,
    /// Where it may be answered to.
    pub redirect_uris: Vec<String>,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When it is forgotten.
    pub expires_at: Timestamp,
}

/// An authorization code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuthCode {
    /// What is kept of it.
    pub hash: KeyHash,
    /// When it stops working.
    pub expires_at: Timestamp,
    /// When it was redeemed.
    pub used_at: Option<Timestamp>,
    /// What was granted, as the app writes it.
    pub document: String,
}

/// An access or refresh token of an agent connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OAuthToken {
    /// What is kept of it.
    pub hash: KeyHash,
    /// The workspace.
    pub tenant: TenantId,
    /// The connection.
    pub agent: TokenId,
    /// Whether it is for refreshing.
    pub refresh: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stops working.
    pub expires_at: Timestamp,
    /// When it was exchanged for another one.
    pub used_at: Option<Timestamp>,
}

/// Clients, codes and tokens.
#[async_trait]
pub trait OAuth: Send + Sync {
    /// Adds a client.
    async fn insert_client(&self, client: &OAuthClient) -> Result<(), StoreError>;
    /// A client that is not forgotten at `at`.
    async fn find_client(&self, id: &str, at: Timestamp) -> Result<Option<OAuthClient>, StoreError>;
    /// Keeps a client until `until` at least.
    async fn keep_client(&self, id: &str, until: Timestamp) -> Result<(), StoreError>;
    /// Adds a code.
    async fn insert_code(&self, code: &OAuthCode) -> Result<(), StoreError>;
    /// A code, used or not.
    async fn find_code(&self, hash: &KeyHash) -> Result<Option<OAuthCode>, StoreError>;
    /// Uses a code up and adds the connection and tokens that come of it; `false` = it was used or has expired.
    async fn redeem_code(
        &self,
        hash: &KeyHash,
        at: Timestamp,
        agent: &AgentConnection,
        tokens: &[OAuthToken],
    ) -> Result<bool, StoreError>;
    /// A token, used or not.
    async fn find_oauth_token(&self, hash: &KeyHash) -> Result<Option<OAuthToken>, StoreError>;
    /// Uses a refresh token up and adds those that come of it; `false` = it was used or has expired.
    async fn exchange_token(
        &self,
        hash: &KeyHash,
        at: Timestamp,
        tokens: &[OAuthToken],
    ) -> Result<bool, StoreError>;
    /// Removes clients, codes and tokens that expired before `before`; says how many.
    async fn prune_oauth(&self, before: Timestamp) -> Result<u64, StoreError>;
}

fn insert_token(token: &OAuthToken) -> Statement {
    Statement::new(
        "INSERT INTO oauth_tokens (hash, tenant_id, agent_id, kind, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
        params![
            &token.hash.0[..],
            token.tenant.0,
            token.agent.0,
            i16::from(token.refresh),
            token.created_at.millis(),
            token.expires_at.millis(),
        ],
    )
}

/// Uses up what `hash` names in `table`.
fn using(sql: &'static str, hash: &KeyHash, at: Timestamp) -> Statement {
    Statement::new(sql, params![&hash.0[..], at.millis()]).required()
}

#[async_trait]
impl<S: Sql> OAuth for S {
    async fn insert_client(&self, client: &OAuthClient) -> Result<(), StoreError> {
        let insert = Statement::new(
            "INSERT INTO oauth_clients (client_id, name, redirect_uris, created_at, expires_at)
             VALUES ($1, $2, $3, $4, $5)",
            params![
                &*client.id,
                &*client.name,
                to_json(&client.redirect_uris)?,
                client.created_at.millis(),
                client.expires_at.millis(),
            ],
        );
        self.write_beside(vec![insert]).await.map(drop)
    }

    async fn find_client(&self, id: &str, at: Timestamp) -> Result<Option<OAuthClient>, StoreError> {
        let sql = "SELECT name, redirect_uris, created_at, expires_at FROM oauth_clients
                   WHERE client_id = $1 AND expires_at > $2";
        let client = |row: &Row| {
            Ok(OAuthClient {
                id: id.to_owned(),
                name: row.text(0)?.to_owned(),
                redirect_uris: from_json(row.text(1)?)?,
                created_at: rows::instant(row, 2)?,
                expires_at: rows::instant(row, 3)?,
            })
        };
        let found = self.query(sql, params![id, at.millis()]).await?;
        found.first().map(client).transpose()
    }

    async fn keep_client(&self, id: &str, until: Timestamp) -> Result<(), StoreError> {
        let update = Statement::new(
            "UPDATE oauth_clients SET expires_at = $2 WHERE client_id = $1 AND expires_at < $2",
            params![id, until.millis()],
        );
        self.write_beside(vec![update]).await.map(drop)
    }

    async fn insert_code(&self, code: &OAuthCode) -> Result<(), StoreError> {
        let insert = Statement::new(
            "INSERT INTO oauth_codes (hash, expires_at, document) VALUES ($1, $2, $3)",
            params![&code.hash.0[..], code.expires_at.millis(), &*code.document],
        );
        self.write_beside(vec![insert]).await.map(drop)
    }

    async fn find_code(&self, hash: &KeyHash) -> Result<Option<OAuthCode>, StoreError> {
        let sql = "SELECT expires_at, used_at, document FROM oauth_codes WHERE hash = $1";
        let code = |row: &Row| {
            Ok(OAuthCode {
                hash: *hash,
                expires_at: rows::instant(row, 0)?,
                used_at: rows::opt_instant(row, 1)?,
                document: row.text(2)?.to_owned(),
            })
        };
        let found = self.query(sql, params![&hash.0[..]]).await?;
        found.first().map(code).transpose()
    }

    async fn redeem_code(
        &self,
        hash: &KeyHash,
        at: Timestamp,
        agent: &AgentConnection,
        tokens: &[OAuthToken],
    ) -> Result<bool, StoreError> {
        let sql =
            "UPDATE oauth_codes SET used_at = $2 WHERE hash = $1 AND used_at IS NULL AND expires_at > $2";
        let mut statements = vec![using(sql, hash, at), agents::insert(agent)?];
        statements.extend(tokens.iter().map(insert_token));
        Ok(self.write_beside(statements).await?.is_some())
    }

    async fn find_oauth_token(&self, hash: &KeyHash) -> Result<Option<OAuthToken>, StoreError> {
        let sql = "SELECT tenant_id, agent_id, kind, created_at, expires_at, used_at FROM oauth_tokens WHERE hash = $1";
        let token = |row: &Row| {
            Ok(OAuthToken {
                hash: *hash,
                tenant: TenantId(row.uuid(0)?),
                agent: TokenId(row.uuid(1)?),
                refresh: row.small(2)? == 1,
                created_at: rows::instant(row, 3)?,
                expires_at: rows::instant(row, 4)?,
                used_at: rows::opt_instant(row, 5)?,
            })
        };
        let found = self.query(sql, params![&hash.0[..]]).await?;
        found.first().map(token).transpose()
    }

    async fn exchange_token(
        &self,
        hash: &KeyHash,
        at: Timestamp,
        tokens: &[OAuthToken],
    ) -> Result<bool, StoreError> {
        let sql = "UPDATE oauth_tokens SET used_at = $2
                   WHERE hash = $1 AND kind = 1 AND used_at IS NULL AND expires_at > $2";
        let mut statements = vec![using(sql, hash, at)];
        statements.extend(tokens.iter().map(insert_token));
        Ok(self.write_beside(statements).await?.is_some())
    }

    async fn prune_oauth(&self, before: Timestamp) -> Result<u64, StoreError> {
        const CLIENTS: &str = "DELETE FROM oauth_clients WHERE client_id IN
            (SELECT client_id FROM oauth_clients WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
        const CODES: &str = "DELETE FROM oauth_codes WHERE hash IN
            (SELECT hash FROM oauth_codes WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
        const TOKENS: &str = "DELETE FROM oauth_tokens WHERE hash IN
            (SELECT hash FROM oauth_tokens WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
        let mut total = 0_u64;
        for sql in [CLIENTS, CODES, TOKENS] {
            total = total.saturating_add(prune(self, sql, before).await?);
        }
        Ok(total)
    }
}
