//! Step-up tokens and ended sessions in memory.

use async_trait::async_trait;
use turnpike_core::access::KeyHash;
use turnpike_core::ids::TenantId;
use turnpike_core::time::Timestamp;

use super::MemoryStore;
use crate::error::StoreError;
use crate::records::AuditRow;
use crate::sessions::{EndedSession, Sessions, StepUpToken};

/// What there is of both.
#[derive(Default)]
pub(super) struct SessionRows {
    tokens: Vec<StepUpToken>,
    ended: Vec<EndedSession>,
}

#[async_trait]
impl Sessions for MemoryStore {
    async fn insert_step_up(&self, token: &StepUpToken, audit: &AuditRow) -> Result<(), StoreError> {
        let mut state = self.state();
        let same = |known: &StepUpToken| (known.tenant, known.hash) == (token.tenant, token.hash);
        if state.sessions.tokens.iter().any(same) {
            return Err(StoreError::AlreadyExists);
        }
        state.sessions.tokens.push(token.clone());
        state.append(audit);
        Ok(())
    }

    async fn find_step_up(
        &self,
        tenant: TenantId,
        hash: &KeyHash,
    ) -> Result<Option<StepUpToken>, StoreError> {
        let state = self.state();
        let mut tokens = state.sessions.tokens.iter();
        let found = tokens.find(|token| token.tenant == tenant && token.hash.matches(hash));
        Ok(found.map(|token| {
            let mut ended = state.sessions.ended.iter();
            let ended = ended.find(|ended| ended.hash == token.session);
            StepUpToken {
                revoked_at: token.revoked_at.or(ended.map(|ended| ended.ended_at)),
                ..token.clone()
            }
        }))
    }

    async fn end_session(&self, ended: &EndedSession) -> Result<u64, StoreError> {
        let mut state = self.state();
        if !state.sessions.ended.iter().any(|known| known.hash == ended.hash) {
            state.sessions.ended.push(ended.clone());
        }
        let mut revoked = 0_u64;
        for token in &mut state.sessions.tokens {
            let theirs = token.subject == ended.subject && token.issuer == ended.issuer;
            if theirs && token.revoked_at.is_none() && token.expires_at > ended.ended_at {
                token.revoked_at = Some(ended.ended_at);
                revoked = revoked.saturating_add(1);
            }
        }
        Ok(revoked)
    }

    async fn is_session_ended(&self, hash: &KeyHash) -> Result<bool, StoreError> {
        Ok(self
            .state()
            .sessions
            .ended
            .iter()
            .any(|ended| ended.hash == *hash))
    }

    async fn prune_sessions(&self, before: Timestamp) -> Result<u64, StoreError> {
        let mut state = self.state();
        let rows = &mut state.sessions;
        let count = |rows: &SessionRows| rows.tokens.len().saturating_add(rows.ended.len());
        let all = count(rows);
        rows.tokens.retain(|token| token.expires_at >= before);
        rows.ended.retain(|ended| ended.expires_at >= before);
        Ok(u64::try_from(all.saturating_sub(count(rows))).unwrap_or(u64::MAX))
    }
}
