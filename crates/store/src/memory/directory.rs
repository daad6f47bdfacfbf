//! Workspaces, members and end users in memory.

use async_trait::async_trait;
use turnpike_core::access::Role;
use turnpike_core::ids::{ExternalUserId, TenantId, TokenId};
use turnpike_core::ledger::policy::EndUser;
use turnpike_core::ledger::token::EndUserToken;
use turnpike_core::ledger::{Account, Payer, TenantStatus};
use turnpike_core::time::Timestamp;

use super::MemoryStore;
use crate::error::StoreError;
use crate::members::{MemberChange, Members};
use crate::records::{AuditRow, EndUserFilter, Member, SigningKeyRow, Tenant};
use crate::traits::Directory;

#[async_trait]
impl Directory for MemoryStore {
    async fn insert_tenant(&self, tenant: &Tenant, audit: &AuditRow) -> Result<(), StoreError> {
        let mut state = self.state();
        if state.tenants.contains_key(&tenant.id) {
            return Err(StoreError::AlreadyExists);
        }
        let mut head = tenant.head();
        head.status = tenant.status;
        state.books.tenants.load(tenant.id, Some(head));
        state.tenants.insert(tenant.id, tenant.clone());
        state.append(audit);
        Ok(())
    }

    async fn find_tenant(&self, tenant: TenantId) -> Result<Option<Tenant>, StoreError> {
        Ok(self.state().tenants.get(&tenant).cloned())
    }

    async fn list_tenants(&self) -> Result<Vec<Tenant>, StoreError> {
        let mut tenants: Vec<Tenant> = self.state().tenants.values().cloned().collect();
        tenants.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        Ok(tenants)
    }

    async fn set_tenant_status(
        &self,
        id: TenantId,
        status: TenantStatus,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut state = self.state();
        let Some(tenant) = state.tenants.get_mut(&id) else {
            return Ok(false);
        };
        tenant.status = status;
        if let Some(mut head) = state.books.tenants.get(&id).copied() {
            head.status = status;
            state.books.tenants.load(id, Some(head));
        }
        state.append(audit);
        Ok(true)
    }

    async fn set_tenant_profile(
        &self,
        before: &Tenant,
        after: &Tenant,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let (tenant, rate) = (after.id, after.credits_per_dollar);
        let mut state = self.state();
        let is_new = state.transfers_of(tenant).next().is_none();
        let Some(found) = state.tenants.get_mut(&tenant) else {
            return Ok(false);
        };
        let overtaken = (&found.name, found.credits_per_dollar) != (&before.name, before.credits_per_dollar);
        if overtaken || (found.credits_per_dollar != rate && !is_new) {
            return Ok(false);
        }
        found.name.clone_from(&after.name);
        found.credits_per_dollar = rate;
        if let Some(mut head) = state.books.tenants.get(&tenant).copied() {
            head.credits_per_dollar = rate;
            state.books.tenants.load(tenant, Some(head));
        }
        state.append(audit);
        Ok(true)
    }

    async fn find_end_user(
        &self,
        tenant: TenantId,
        id: &ExternalUserId,
    ) -> Result<Option<EndUser>, StoreError> {
        Ok(self.state().books.end_users.get(&(tenant, id.clone())).cloned())
    }

    async fn list_end_users(
        &self,
        tenant: TenantId,
        filter: &EndUserFilter,
    ) -> Result<Vec<(EndUser, Account)>, StoreError> {
        let state = self.state();
        let wanted = |id: &str| {
            filter.after.as_deref().is_none_or(|after| id > after)
                && filter.contains.as_deref().is_none_or(|part| id.contains(part))
        };
        let mut users: Vec<EndUser> = state
            .books
            .end_users
            .iter()
            .filter(|((of, id), _)| *of == tenant && wanted(id.as_str()))
            .map(|(_, user)| user.clone())
            .collect();
        users.sort_by(|a, b| a.id.cmp(&b.id));
        users.truncate(usize::try_from(filter.limit).unwrap_or(usize::MAX));
        Ok(users
            .into_iter()
            .map(|user| {
                let key = Payer::EndUser(user.id.clone()).account(tenant);
                let account = state.books.accounts.get(&key).copied().unwrap_or_default();
                (user, account)
            })
            .collect())
    }

    async fn find_token(&self, tenant: TenantId, token: TokenId) -> Result<Option<EndUserToken>, StoreError> {
        Ok(self.state().books.tokens.get(&(tenant, token)).cloned())
    }

    async fn prune_tokens(&self, before: Timestamp) -> Result<u64, StoreError> {
        let mut state = self.state();
        let old: Vec<_> = state
            .books
            .tokens
            .iter()
            .filter(|(_, token)| token.expires_at < before)
            .map(|(key, _)| *key)
            .collect();
        state.books.tokens.forget(&old);
        Ok(u64::try_from(old.len()).unwrap_or(u64::MAX))
    }

    async fn list_signing_keys(&self) -> Result<Vec<SigningKeyRow>, StoreError> {
        let mut keys = self.state().signing_keys.clone();
        keys.sort_by(|a, b| (a.created_at, &a.kid).cmp(&(b.created_at, &b.kid)));
        Ok(keys)
    }

    async fn insert_signing_key(&self, key: &SigningKeyRow) -> Result<(), StoreError> {
        let mut state = self.state();
        if state.signing_keys.iter().any(|known| known.kid == key.kid) {
            return Err(StoreError::AlreadyExists);
        }
        state.signing_keys.push(key.clone());
        Ok(())
    }

    async fn delete_signing_key(&self, kid: &str) -> Result<(), StoreError> {
        self.state().signing_keys.retain(|key| key.kid != kid);
        Ok(())
    }
}

#[async_trait]
impl Members for MemoryStore {
    async fn change_member(&self, change: &MemberChange, audit: &AuditRow) -> Result<bool, StoreError> {
        let mut state = self.state();
        let key = (change.tenant, change.subject.clone());
        let has = state.members.get(&key).map(|member| member.role);
        let is_owner = |member: &Member| member.tenant == change.tenant && member.role == Role::Owner;
        let other_owner = state
            .members
            .values()
            .any(|member| is_owner(member) && member.subject != change.subject);
        let loses_owner = has == Some(Role::Owner) && change.to != Some(Role::Owner) && !other_owner;
        if has != change.from || loses_owner || (has.is_none() && change.to.is_none()) {
            return Ok(false);
        }
        match change.to {
            None => drop(state.members.remove(&key)),
            Some(role) => {
                let new = Member {
                    tenant: change.tenant,
                    subject: change.subject.clone(),
                    role,
                    created_at: change.at,
                };
                state.members.entry(key).or_insert(new).role = role;
            }
        }
        if let Some(made_by) = change.invites_no_more() {
            state.take_back(change.tenant, &made_by, change.at);
        }
        state.append(audit);
        Ok(true)
    }

    async fn list_members(&self, tenant: TenantId) -> Result<Vec<Member>, StoreError> {
        let state = self.state();
        let members = state.members.values();
        Ok(members
            .filter(|member| member.tenant == tenant)
            .cloned()
            .collect())
    }

    async fn list_memberships(&self, subject: &str) -> Result<Vec<(Member, Tenant)>, StoreError> {
        let state = self.state();
        let with_tenant =
            |member: &Member| Some((member.clone(), state.tenants.get(&member.tenant)?.clone()));
        let members = state.members.values();
        let mut all: Vec<_> = members
            .filter(|member| member.subject == subject)
            .filter_map(with_tenant)
            .collect();
        all.sort_by(|(_, one), (_, other)| (&one.name, one.id).cmp(&(&other.name, other.id)));
        Ok(all)
    }
}
