//! Agent connections, with the SQL that both databases share.
//!
//! A connection is two rows: this one says what it is and how it is found, the row of `end_user_tokens` with the same
//! id says what it may spend and whether it works, and is the ledger's. Only both together are a connection.

use std::sync::Arc;

use async_trait::async_trait;
use turnpike_core::access::{AgentScope, KeyHash};
use turnpike_core::ids::{TenantId, TokenId};
use turnpike_core::ledger::Payer;
use turnpike_core::ledger::token::EndUserToken;
use turnpike_core::time::Timestamp;

use crate::directory::{corrupt, from_json, to_json};
use crate::error::StoreError;
use crate::rows::{self, TOKEN_COLUMNS, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};

/// Rows removed in one transaction, so that nobody waits long for it.
pub(crate) const PRUNED_AT_ONCE: u32 = 1_000;
const COLUMNS: &str = "a.tenant_id, a.agent_id, a.owner, a.name, a.hash, a.prefix, a.client_id, a.resource, a.scopes, \
     a.created_at, a.created_by, a.expires_at, a.last_used_at, a.revoked_at";
/// How many they are.
const WIDTH: usize = 14;

/// What an agent connection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConnection {
    /// The workspace.
    pub tenant: TenantId,
    /// Its id, and that of the row in the ledger.
    pub id: TokenId,
    /// Whose balance it spends from.
    pub payer: Payer,
    /// What people call it.
    pub name: String,
    /// What is kept of its secret, and the first characters; `None` = it came about by a grant and has none.
    pub secret: Option<(KeyHash, String)>,
    /// The client and the resource that it was granted for; `None` = it was issued with a secret.
    pub grant: Option<(String, String)>,
    /// What it may do.
    pub scopes: Vec<AgentScope>,
    /// When it was made.
    pub created_at: Timestamp,
    /// By whom, as records name them.
    pub created_by: String,
    /// When it stops working.
    pub expires_at: Timestamp,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// When it was ended before that, beside what the ledger says.
    pub revoked_at: Option<Timestamp>,
}

/// A connection with its row in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// What it is.
    pub connection: AgentConnection,
    /// What the ledger knows of it.
    pub token: EndUserToken,
}

impl Agent {
    /// When it was ended, whoever did.
    pub fn revoked_at(&self) -> Option<Timestamp> {
        self.token.revoked_at.or(self.connection.revoked_at)
    }
}

/// Which connections of a workspace.
#[derive(Clone, Debug)]
pub struct AgentFilter {
    /// Of this payer only.
    pub payer: Option<Payer>,
    /// Older than this one.
    pub before: Option<TokenId>,
    /// At most so many.
    pub limit: u32,
}

/// Agent connections.
#[async_trait]
pub trait Agents: Send + Sync {
    /// Adds what a connection is; it works from when the ledger has its row.
    async fn insert_agent(&self, agent: &AgentConnection) -> Result<(), StoreError>;
    /// The connection whose secret hashes to `hash`.
    async fn find_agent_by_hash(&self, hash: &KeyHash) -> Result<Option<Agent>, StoreError>;
    /// A workspace's connection.
    async fn find_agent(&self, tenant: TenantId, id: TokenId) -> Result<Option<Agent>, StoreError>;
    /// A workspace's connections, newest first.
    async fn list_agents(&self, tenant: TenantId, filter: &AgentFilter) -> Result<Vec<Agent>, StoreError>;
    /// Ends a connection here, before or beside the ledger; one that was ended stays so.
    async fn end_agent(&self, tenant: TenantId, id: TokenId, at: Timestamp) -> Result<(), StoreError>;
    /// Notes when a connection was last used.
    async fn touch_agent(&self, tenant: TenantId, id: TokenId, at: Timestamp) -> Result<(), StoreError>;
    /// Removes connections that expired before `before`; says how many.
    async fn prune_agents(&self, before: Timestamp) -> Result<u64, StoreError>;
}

fn agent(row: &Row) -> Result<Agent, StoreError> {
    let both = |first: usize| {
        let (one, two) = (row.opt_text(first)?, row.opt_text(first + 1)?);
        Ok::<_, StoreError>(one.zip(two).map(|(one, two)| (one.to_owned(), two.to_owned())))
    };
    let hash = match row.opt_bytes(4)? {
        None => None,
        Some(_) => Some(KeyHash(row.hash(4)?)),
    };
    let prefix = row.opt_text(5)?.map(str::to_owned);
    let names: Vec<String> = from_json(row.text(8)?)?;
    let scope = |name: &String| {
        let found = AgentScope::ALL.iter().copied();
        let mut found = found.filter(|scope| scope.as_str() == name);
        found.next().ok_or_else(|| corrupt("agent scope"))
    };
    Ok(Agent {
        connection: AgentConnection {
            tenant: TenantId(row.uuid(0)?),
            id: TokenId(row.uuid(1)?),
            payer: rows::payer(row.text(2)?)?,
            name: row.text(3)?.to_owned(),
            secret: hash.zip(prefix),
            grant: both(6)?,
            scopes: names.iter().map(scope).collect::<Result<_, _>>()?,
            created_at: rows::instant(row, 9)?,
            created_by: row.text(10)?.to_owned(),
            expires_at: rows::instant(row, 11)?,
            last_used_at: rows::opt_instant(row, 12)?,
            revoked_at: rows::opt_instant(row, 13)?,
        },
        token: rows::token(row, WIDTH)?,
    })
}

fn agent_params(tenant: TenantId, id: TokenId) -> Vec<Param> {
    let mut params = tenant_params(tenant);
    params.push(Param::from(id.0));
    params
}

/// What both columns of a connection's two rows are read by.
fn select() -> String {
    let token: Vec<String> = TOKEN_COLUMNS
        .split(", ")
        .map(|column| format!("u.{column}"))
        .collect();
    format!(
        "SELECT {COLUMNS}, {} FROM agent_connections a JOIN end_user_tokens u
             ON u.bucket = a.bucket AND u.tenant_id = a.tenant_id AND u.token_id = a.agent_id",
        token.join(", ")
    )
}

/// The row of a connection.
pub(crate) fn insert(agent: &AgentConnection) -> Result<Statement, StoreError> {
    let scopes: Arc<[&str]> = agent.scopes.iter().map(|scope| scope.as_str()).collect();
    let mut params = agent_params(agent.tenant, agent.id);
    params.extend(params![
        agent.payer.as_owner(),
        &*agent.name,
        agent.secret.as_ref().map(|(hash, _)| &hash.0[..]),
        agent.secret.as_ref().map(|(_, prefix)| &**prefix),
        agent.grant.as_ref().map(|(client, _)| &**client),
        agent.grant.as_ref().map(|(_, resource)| &**resource),
        to_json(&scopes)?,
        agent.created_at.millis(),
        &*agent.created_by,
        agent.expires_at.millis(),
    ]);
    Ok(Statement::new(
        "INSERT INTO agent_connections (bucket, tenant_id, agent_id, owner, name, hash, prefix, client_id, resource,
             scopes, created_at, created_by, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        params,
    ))
}

#[async_trait]
impl<S: Sql> Agents for S {
    async fn insert_agent(&self, agent: &AgentConnection) -> Result<(), StoreError> {
        self.write_beside(vec![insert(agent)?]).await.map(drop)
    }

    async fn find_agent_by_hash(&self, hash: &KeyHash) -> Result<Option<Agent>, StoreError> {
        let sql = format!("{} WHERE a.hash = $1", select());
        let found = self.query(&sql, params![&hash.0[..]]).await?;
        let found = found.first().map(agent).transpose()?;
        let same = |known: &KeyHash| known.matches(hash);
        Ok(found.filter(|agent| {
            agent
                .connection
                .secret
                .as_ref()
                .is_some_and(|(known, _)| same(known))
        }))
    }

    async fn find_agent(&self, tenant: TenantId, id: TokenId) -> Result<Option<Agent>, StoreError> {
        let sql = format!(
            "{} WHERE a.bucket = $1 AND a.tenant_id = $2 AND a.agent_id = $3",
            select()
        );
        let found = self.query(&sql, agent_params(tenant, id)).await?;
        found.first().map(agent).transpose()
    }

    async fn list_agents(&self, tenant: TenantId, filter: &AgentFilter) -> Result<Vec<Agent>, StoreError> {
        let mut params = tenant_params(tenant);
        params.push(Param::from(i64::from(filter.limit)));
        let mut sql = format!("{} WHERE a.bucket = $1 AND a.tenant_id = $2", select());
        if let Some(before) = filter.before {
            params.push(Param::from(before.0));
            sql.push_str(" AND a.agent_id < $4");
        }
        if let Some(payer) = &filter.payer {
            params.push(Param::from(payer.as_owner()));
            let of = if filter.before.is_some() {
                " AND a.owner = $5"
            } else {
                " AND a.owner = $4"
            };
            sql.push_str(of);
        }
        // Ids begin with the time at which they were made.
        sql.push_str(" ORDER BY a.agent_id DESC LIMIT $3");
        self.query(&sql, params).await?.iter().map(agent).collect()
    }

    async fn end_agent(&self, tenant: TenantId, id: TokenId, at: Timestamp) -> Result<(), StoreError> {
        let mut params = agent_params(tenant, id);
        params.push(Param::from(at.millis()));
        let update = Statement::new(
            "UPDATE agent_connections SET revoked_at = $4
             WHERE bucket = $1 AND tenant_id = $2 AND agent_id = $3 AND revoked_at IS NULL",
            params,
        );
        self.write_beside(vec![update]).await.map(drop)
    }

    async fn touch_agent(&self, tenant: TenantId, id: TokenId, at: Timestamp) -> Result<(), StoreError> {
        let mut params = agent_params(tenant, id);
        params.push(Param::from(at.millis()));
        let update = Statement::new(
            "UPDATE agent_connections SET last_used_at = $4 WHERE bucket = $1 AND tenant_id = $2 AND agent_id = $3",
            params,
        );
        self.write_beside(vec![update]).await.map(drop)
    }

    async fn prune_agents(&self, before: Timestamp) -> Result<u64, StoreError> {
        const SQL: &str = "DELETE FROM agent_connections WHERE (bucket, tenant_id, agent_id) IN
            (SELECT bucket, tenant_id, agent_id FROM agent_connections WHERE expires_at < $1
             ORDER BY expires_at LIMIT $2)";
        prune(self, SQL, before).await
    }
}

/// Runs a statement that removes at most `$2` rows older than `$1` until there are none; says how many there were.
pub(crate) async fn prune<S: Sql + ?Sized>(
    store: &S,
    sql: &'static str,
    before: Timestamp,
) -> Result<u64, StoreError> {
    let mut total = 0_u64;
    loop {
        let params = params![before.millis(), i64::from(PRUNED_AT_ONCE)];
        let touched = store.write_beside(vec![Statement::new(sql, params)]).await?;
        let pruned = touched.and_then(|touched| touched.first().copied());
        let pruned = pruned.unwrap_or_default();
        total = total.saturating_add(pruned);
        if pruned < u64::from(PRUNED_AT_ONCE) {
            return Ok(total);
        }
    }
}
