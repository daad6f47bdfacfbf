//! Dashboard sessions: step-up tokens and sessions that were ended, with the SQL that both databases share.
//!
//! Both are kept as keyed hashes only. No batch keeps rows of these tables.

use async_trait::async_trait;
use turnpike_core::access::KeyHash;
use turnpike_core::ids::TenantId;
use turnpike_core::time::Timestamp;

use crate::audit_log::audit_row;
use crate::error::StoreError;
use crate::records::AuditRow;
use crate::rows::{self, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};

/// Rows removed in one transaction, so that nobody waits long for it.
const PRUNED_AT_ONCE: u32 = 1_000;

/// A step-up token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepUpToken {
    /// The workspace it is for.
    pub tenant: TenantId,
    /// What is kept of its text.
    pub hash: KeyHash,
    /// Who vouches for the subject.
    pub issuer: String,
    /// Whose it is.
    pub subject: String,
    /// The session it was given to.
    pub session: KeyHash,
    /// When it was given.
    pub created_at: Timestamp,
    /// From when on it is worth nothing.
    pub expires_at: Timestamp,
    /// When it was revoked, or its session was ended.
    pub revoked_at: Option<Timestamp>,
}

/// A session that its owner ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSession {
    /// What is kept of it.
    pub hash: KeyHash,
    /// Who vouched for the subject.
    pub issuer: String,
    /// Whose it was.
    pub subject: String,
    /// When it was ended.
    pub ended_at: Timestamp,
    /// From when on nobody would take it anyway.
    pub expires_at: Timestamp,
}

/// Step-up tokens and ended sessions.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Adds a step-up token and its audit row.
    async fn insert_step_up(&self, token: &StepUpToken, audit: &AuditRow) -> Result<(), StoreError>;
    /// The step-up token of the workspace that hashes to `hash`.
    async fn find_step_up(&self, tenant: TenantId, hash: &KeyHash)
    -> Result<Option<StepUpToken>, StoreError>;
    /// Ends a session and revokes every step-up token of its subject; says how many of them worked until then.
    async fn end_session(&self, ended: &EndedSession) -> Result<u64, StoreError>;
    /// Whether the session was ended.
    async fn is_session_ended(&self, hash: &KeyHash) -> Result<bool, StoreError>;
    /// Removes tokens and sessions that expired before `before`; says how many.
    async fn prune_sessions(&self, before: Timestamp) -> Result<u64, StoreError>;
}

#[async_trait]
impl<S: Sql> Sessions for S {
    async fn insert_step_up(&self, token: &StepUpToken, audit: &AuditRow) -> Result<(), StoreError> {
        let mut params = tenant_params(token.tenant);
        params.extend(params![
            &token.hash.0[..],
            &*token.issuer,
            &*token.subject,
            &token.session.0[..],
            token.created_at.millis(),
            token.expires_at.millis(),
        ]);
        let insert = Statement::new(
            "INSERT INTO step_up_tokens (bucket, tenant_id, hash, issuer, subject, session, created_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            params,
        );
        self.write_beside(vec![insert, audit_row(audit)]).await.map(drop)
    }

    async fn find_step_up(
        &self,
        tenant: TenantId,
        hash: &KeyHash,
    ) -> Result<Option<StepUpToken>, StoreError> {
        // A token that was being given while its session was ended goes with the session.
        let sql = "SELECT t.issuer, t.subject, t.session, t.created_at, t.expires_at,
                       COALESCE(t.revoked_at, e.ended_at)
                   FROM step_up_tokens t LEFT JOIN ended_sessions e ON e.hash = t.session
                   WHERE t.bucket = $1 AND t.tenant_id = $2 AND t.hash = $3";
        let mut params = tenant_params(tenant);
        params.push(Param::from(&hash.0[..]));
        let token = |row: &Row| {
            Ok(StepUpToken {
                tenant,
                hash: *hash,
                issuer: row.text(0)?.to_owned(),
                subject: row.text(1)?.to_owned(),
                session: KeyHash(row.hash(2)?),
                created_at: rows::instant(row, 3)?,
                expires_at: rows::instant(row, 4)?,
                revoked_at: rows::opt_instant(row, 5)?,
            })
        };
        self.query(sql, params).await?.first().map(token).transpose()
    }

    async fn end_session(&self, ended: &EndedSession) -> Result<u64, StoreError> {
        let end = Statement::new(
            "INSERT INTO ended_sessions (hash, ended_at, expires_at) VALUES ($1, $2, $3) ON CONFLICT (hash) DO NOTHING",
            params![
                &ended.hash.0[..],
                ended.ended_at.millis(),
                ended.expires_at.millis()
            ],
        );
        let revoke = Statement::new(
            "UPDATE step_up_tokens SET revoked_at = $3
             WHERE subject = $1 AND issuer = $2 AND revoked_at IS NULL AND expires_at > $3",
            params![&*ended.subject, &*ended.issuer, ended.ended_at.millis()],
        );
        let touched = self.write_beside(vec![end, revoke]).await?.unwrap_or_default();
        Ok(touched.get(1).copied().unwrap_or_default())
    }

    async fn is_session_ended(&self, hash: &KeyHash) -> Result<bool, StoreError> {
        let sql = "SELECT ended_at FROM ended_sessions WHERE hash = $1";
        Ok(!self.query(sql, params![&hash.0[..]]).await?.is_empty())
    }

    async fn prune_sessions(&self, before: Timestamp) -> Result<u64, StoreError> {
        const TOKENS: &str = "DELETE FROM step_up_tokens WHERE (bucket, tenant_id, hash) IN
            (SELECT bucket, tenant_id, hash FROM step_up_tokens WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
        const ENDED: &str = "DELETE FROM ended_sessions WHERE hash IN
            (SELECT hash FROM ended_sessions WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
        let mut total = 0_u64;
        for sql in [TOKENS, ENDED] {
            loop {
                let params = params![before.millis(), i64::from(PRUNED_AT_ONCE)];
                let touched = self.write_beside(vec![Statement::new(sql, params)]).await?;
                let pruned = touched.and_then(|touched| touched.first().copied());
                let pruned = pruned.unwrap_or_default();
                total = total.saturating_add(pruned);
                if pruned < u64::from(PRUNED_AT_ONCE) {
                    break;
                }
            }
        }
        Ok(total)
    }
}
