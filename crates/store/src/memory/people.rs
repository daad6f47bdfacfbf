//! The people of the built-in identity in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use turnpike_core::time::Timestamp;

use super::MemoryStore;
use crate::error::StoreError;
use crate::invitations::{Acceptance, Accepted};
use crate::people::{Attempt, BackOff, Enrolled, People, Person};
use crate::records::AuditRow;

/// A person's row.
struct Entry {
    person: Person,
    login_key: String,
    reset: Option<([u8; 32], Timestamp)>,
    /// Recovery codes, and whether each was taken.
    recovery: BTreeMap<[u8; 32], bool>,
}

/// Everybody, and failed attempts by slot.
#[derive(Default)]
pub(super) struct Table {
    people: BTreeMap<String, Entry>,
    attempts: BTreeMap<i64, (i64, Timestamp)>,
}

impl Table {
    /// Whether there is anybody.
    pub(super) fn is_anybody(&self) -> bool {
        !self.people.is_empty()
    }
}

fn unused(codes: &[[u8; 32]]) -> BTreeMap<[u8; 32], bool> {
    codes.iter().map(|code| (*code, false)).collect()
}

#[async_trait]
impl People for MemoryStore {
    async fn has_people(&self) -> Result<bool, StoreError> {
        Ok(self.state().people.is_anybody())
    }

    async fn find_person(&self, subject: &str) -> Result<Option<Person>, StoreError> {
        let state = self.state();
        Ok(state.people.people.get(subject).map(|entry| entry.person.clone()))
    }

    async fn find_login(&self, login_key: &str) -> Result<Option<Person>, StoreError> {
        let state = self.state();
        let mut entries = state.people.people.values();
        let found = entries.find(|entry| entry.login_key == login_key);
        Ok(found.map(|entry| entry.person.clone()))
    }

    async fn insert_person(
        &self,
        person: &Person,
        login_key: &str,
        recovery: &[[u8; 32]],
        acceptance: &Acceptance,
    ) -> Result<Enrolled, StoreError> {
        let mut state = self.state();
        if state
            .people
            .people
            .values()
            .any(|entry| entry.login_key == login_key)
        {
            return Ok(Enrolled::LoginTaken);
        }
        if state.accept(acceptance) != Accepted::Joined {
            return Ok(Enrolled::NotOpen);
        }
        let entry = Entry {
            person: person.clone(),
            login_key: login_key.to_owned(),
            reset: None,
            recovery: unused(recovery),
        };
        state.people.people.insert(person.subject.clone(), entry);
        Ok(Enrolled::Joined)
    }

    async fn take_totp_step(&self, subject: &str, step: i64) -> Result<bool, StoreError> {
        let mut state = self.state();
        let Some(entry) = state.people.people.get_mut(subject) else {
            return Ok(false);
        };
        let last = &mut entry.person.credentials.totp_step;
        let fresh = *last < step;
        *last = step.max(*last);
        Ok(fresh)
    }

    async fn take_recovery_code(
        &self,
        subject: &str,
        hash: &[u8; 32],
        _at: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut state = self.state();
        let entry = state.people.people.get_mut(subject);
        let taken = entry.and_then(|entry| entry.recovery.get_mut(hash));
        Ok(taken.is_some_and(|taken| !std::mem::replace(taken, true)))
    }

    async fn count_recovery_codes(&self, subject: &str) -> Result<i64, StoreError> {
        let state = self.state();
        let entry = state.people.people.get(subject);
        let left = entry.map_or(0, |entry| {
            entry.recovery.values().filter(|taken| !**taken).count()
        });
        Ok(i64::try_from(left).unwrap_or(i64::MAX))
    }

    async fn replace_recovery_codes(
        &self,
        subject: &str,
        codes: &[[u8; 32]],
        audit: Option<&AuditRow>,
    ) -> Result<(), StoreError> {
        let mut state = self.state();
        if let Some(entry) = state.people.people.get_mut(subject) {
            entry.recovery = unused(codes);
        }
        if let Some(audit) = audit {
            state.append(audit);
        }
        Ok(())
    }

    async fn take_attempt(
        &self,
        slot: i64,
        now: Timestamp,
        forget_before: Timestamp,
        back_off: &BackOff,
    ) -> Result<Attempt, StoreError> {
        let mut state = self.state();
        let (failures, next_try_at) = state.people.attempts.get(&slot).copied().unwrap_or((0, now));
        if next_try_at > now {
            return Ok(Attempt::NotBefore(next_try_at));
        }
        let failures = if next_try_at < forget_before { 0 } else { failures };
        let at = usize::try_from(failures).unwrap_or(usize::MAX);
        let wait = back_off.get(at).or(back_off.last()).copied().unwrap_or_default();
        let row = (failures.saturating_add(1), now.plus_millis(wait));
        state.people.attempts.insert(slot, row);
        Ok(Attempt::Allowed)
    }

    async fn return_attempt(&self, slot: i64, now: Timestamp) -> Result<(), StoreError> {
        if let Some((failures, next_try_at)) = self.state().people.attempts.get_mut(&slot) {
            *failures = failures.saturating_sub(1).max(0);
            *next_try_at = now;
        }
        Ok(())
    }

    async fn clear_attempts(&self, slot: i64) -> Result<(), StoreError> {
        self.state().people.attempts.remove(&slot);
        Ok(())
    }

    async fn end_sessions(&self, subject: &str, at: Timestamp) -> Result<(), StoreError> {
        if let Some(entry) = self.state().people.people.get_mut(subject) {
            entry.person.sessions_after = at.max(entry.person.sessions_after);
        }
        Ok(())
    }

    async fn open_reset(
        &self,
        subject: &str,
        hash: &[u8; 32],
        expires_at: Timestamp,
        at: Timestamp,
        audit: Option<&AuditRow>,
    ) -> Result<bool, StoreError> {
        let mut state = self.state();
        let Some(entry) = state.people.people.get_mut(subject) else {
            return Ok(false);
        };
        entry.reset = Some((*hash, expires_at));
        entry.person.reset_until = Some(expires_at);
        entry.person.sessions_after = at;
        if let Some(audit) = audit {
            state.append(audit);
        }
        Ok(true)
    }

    async fn find_reset(&self, hash: &[u8; 32], now: Timestamp) -> Result<Option<Person>, StoreError> {
        let state = self.state();
        let is_open =
            |entry: &&Entry| matches!(&entry.reset, Some((known, until)) if known == hash && *until > now);
        let found = state.people.people.values().find(is_open);
        Ok(found.map(|entry| entry.person.clone()))
    }

    async fn finish_reset(
        &self,
        hash: &[u8; 32],
        person: &Person,
        recovery: &[[u8; 32]],
        now: Timestamp,
        audit: Option<&AuditRow>,
    ) -> Result<bool, StoreError> {
        let mut state = self.state();
        let entry = state.people.people.get_mut(&person.subject);
        let is_open = |entry: &&mut Entry| matches!(&entry.reset, Some((known, until)) if known == hash && *until > now);
        let Some(entry) = entry.filter(is_open) else {
            return Ok(false);
        };
        entry.reset = None;
        entry.person.reset_until = None;
        entry.person.sessions_after = now.max(entry.person.sessions_after);
        entry.person.credentials = person.credentials.clone();
        entry.recovery = unused(recovery);
        if let Some(audit) = audit {
            state.append(audit);
        }
        Ok(true)
    }
}
