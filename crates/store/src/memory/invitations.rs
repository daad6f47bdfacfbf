//! Invitations in memory.

use async_trait::async_trait;
use turnpike_core::ids::TenantId;
use turnpike_core::time::Timestamp;
use uuid::Uuid;

use super::{MemoryStore, State};
use crate::error::StoreError;
use crate::invitations::{Acceptance, Accepted, Invitation, Invitations};
use crate::records::{AuditRow, Member};

impl State {
    /// Takes back what `made_by` has open in a workspace.
    pub(super) fn take_back(&mut self, tenant: TenantId, made_by: &str, at: Timestamp) {
        for invitation in &mut self.invitations {
            if invitation.tenant == tenant && invitation.created_by == made_by && invitation.is_open(at) {
                invitation.revoked_at = Some(at);
            }
        }
    }

    /// Makes a membership of an invitation.
    pub(super) fn accept(&mut self, acceptance: &Acceptance) -> Accepted {
        let wanted = &acceptance.invitation;
        let is_open = |found: &&mut Invitation| found.id == wanted.id && found.is_open(acceptance.at);
        let Some(found) = self.invitations.iter_mut().find(is_open) else {
            return Accepted::NotOpen;
        };
        let key = (wanted.tenant, acceptance.subject.clone());
        if self.members.contains_key(&key) {
            return Accepted::AlreadyMember;
        }
        found.accepted_at = Some(acceptance.at);
        found.accepted_by = Some(acceptance.subject.clone());
        let member = Member {
            tenant: wanted.tenant,
            subject: acceptance.subject.clone(),
            role: wanted.role,
            created_at: acceptance.at,
        };
        self.members.insert(key, member);
        self.append(&acceptance.audit);
        Accepted::Joined
    }
}

#[async_trait]
impl Invitations for MemoryStore {
    async fn insert_invitation(
        &self,
        invitation: &Invitation,
        most: u32,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut state = self.state();
        let is_open =
            |other: &&Invitation| other.tenant == invitation.tenant && other.is_open(invitation.created_at);
        let open = state.invitations.iter().filter(is_open).count();
        let full = u32::try_from(open).is_ok_and(|open| open >= most);
        if full || !state.tenants.contains_key(&invitation.tenant) {
            return Ok(false);
        }
        state.invitations.push(invitation.clone());
        state.append(audit);
        Ok(true)
    }

    async fn replace_first_invitation(
        &self,
        invitation: &Invitation,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut state = self.state();
        if state.people.is_anybody() || !state.tenants.contains_key(&invitation.tenant) {
            return Ok(false);
        }
        state.take_back(invitation.tenant, &invitation.created_by, invitation.created_at);
        state.invitations.push(invitation.clone());
        state.append(audit);
        Ok(true)
    }

    async fn find_invitation(&self, tenant: TenantId, id: Uuid) -> Result<Option<Invitation>, StoreError> {
        let state = self.state();
        let found = state
            .invitations
            .iter()
            .find(|invitation| invitation.tenant == tenant && invitation.id == id);
        Ok(found.cloned())
    }

    async fn find_invitation_by_hash(&self, hash: &[u8; 32]) -> Result<Option<Invitation>, StoreError> {
        let state = self.state();
        let found = state
            .invitations
            .iter()
            .find(|invitation| invitation.hash == *hash);
        Ok(found.cloned())
    }

    async fn list_invitations(
        &self,
        tenant: TenantId,
        before: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<Invitation>, StoreError> {
        let state = self.state();
        let wanted = |invitation: &&Invitation| {
            invitation.tenant == tenant && before.is_none_or(|before| invitation.id < before)
        };
        let mut found: Vec<Invitation> = state.invitations.iter().filter(wanted).cloned().collect();
        found.sort_by_key(|invitation| std::cmp::Reverse(invitation.id));
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(found)
    }

    async fn revoke_invitation(
        &self,
        tenant: TenantId,
        id: Uuid,
        at: Timestamp,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut state = self.state();
        let is_it = |found: &&mut Invitation| found.tenant == tenant && found.id == id && found.is_open(at);
        let Some(found) = state.invitations.iter_mut().find(is_it) else {
            return Ok(false);
        };
        found.revoked_at = Some(at);
        state.append(audit);
        Ok(true)
    }

    async fn accept_invitation(&self, acceptance: &Acceptance) -> Result<Accepted, StoreError> {
        Ok(self.state().accept(acceptance))
    }
}
