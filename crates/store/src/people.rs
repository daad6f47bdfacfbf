//! The people of the built-in identity, with the SQL that both databases share.
//!
//! What may happen once (a step of a second factor, a recovery code, a reset) is one conditional statement, never a
//! look and a change. Nothing here is about money: it is written beside the batches.

use std::fmt;

use async_trait::async_trait;
use turnpike_core::time::Timestamp;

use crate::audit_log::audit_row;
use crate::error::StoreError;
use crate::invitations::{Acceptance, accept};
use crate::records::AuditRow;
use crate::rows;
use crate::sql::{Row, Sql, Statement, params};

const COLUMNS: &str = "subject, login, password, totp, totp_step, sessions_after, created_at, \
     reset_expires_at";

/// A person who signs in here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// Who it is in sessions and memberships.
    pub subject: String,
    /// What the person signs in with, as it was typed.
    pub login: String,
    /// How the person is recognised.
    pub credentials: Credentials,
    /// Sessions that began up to then do not count.
    pub sessions_after: Timestamp,
    /// Since when.
    pub created_at: Timestamp,
    /// Until when a link is open with which the person chooses everything anew, where there is one.
    pub reset_until: Option<Timestamp>,
}

impl Person {
    /// Whether a link is open at `now` with which the person chooses everything anew.
    pub fn is_resetting(&self, now: Timestamp) -> bool {
        self.reset_until.is_some_and(|until| until > now)
    }
}

/// How a person is recognised.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The password's hash, a PHC string.
    pub password: String,
    /// The sealed secret of the second factor.
    pub totp: Vec<u8>,
    /// The last step of the second factor that was taken.
    pub totp_step: i64,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// How long who fails has to wait: after the first failure for the first of these, in milliseconds, after more than
/// there are for the last.
pub type BackOff = [i64];

/// Whether a sign-in may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Now; it counts as a failure until it is cleared or given back.
    Allowed,
    /// Not before then.
    NotBefore(Timestamp),
}

/// What became of a person who is to be added with an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enrolled {
    /// The person is there, and a member.
    Joined,
    /// Somebody else has the login.
    LoginTaken,
    /// The invitation was taken, taken back or has expired.
    NotOpen,
}

/// People who sign in with a password of this service.
#[async_trait]
pub trait People: Send + Sync {
    /// Whether there is anybody.
    async fn has_people(&self) -> Result<bool, StoreError>;
    /// A person.
    async fn find_person(&self, subject: &str) -> Result<Option<Person>, StoreError>;
    /// The person whose login is `login_key` without case.
    async fn find_login(&self, login_key: &str) -> Result<Option<Person>, StoreError>;
    /// Adds a person, whose login is `login_key` without case, as a member of the workspace that invites.
    async fn insert_person(
        &self,
        person: &Person,
        login_key: &str,
        recovery: &[[u8; 32]],
        acceptance: &Acceptance,
    ) -> Result<Enrolled, StoreError>;
    /// Takes a step of the second factor; `false` = it, or a later one, was taken.
    async fn take_totp_step(&self, subject: &str, step: i64) -> Result<bool, StoreError>;
    /// Takes a recovery code; `false` = there is none, or it was taken.
    async fn take_recovery_code(
        &self,
        subject: &str,
        hash: &[u8; 32],
        at: Timestamp,
    ) -> Result<bool, StoreError>;
    /// How many recovery codes are left.
    async fn count_recovery_codes(&self, subject: &str) -> Result<i64, StoreError>;
    /// Replaces all recovery codes; as every change of a person, with a row in the log of at most one workspace: a
    /// transaction appends to one log.
    async fn replace_recovery_codes(
        &self,
        subject: &str,
        codes: &[[u8; 32]],
        audit: Option<&AuditRow>,
    ) -> Result<(), StoreError>;
    /// Takes a try at what belongs to `slot`. Failures from before `forget_before` do not count.
    async fn take_attempt(
        &self,
        slot: i64,
        now: Timestamp,
        forget_before: Timestamp,
        back_off: &BackOff,
    ) -> Result<Attempt, StoreError>;
    /// Gives a try back that was not made.
    async fn return_attempt(&self, slot: i64, now: Timestamp) -> Result<(), StoreError>;
    /// Forgets the failures of `slot`.
    async fn clear_attempts(&self, slot: i64) -> Result<(), StoreError>;
    /// Ends every session that began up to `at`.
    async fn end_sessions(&self, subject: &str, at: Timestamp) -> Result<(), StoreError>;
    /// Lets who knows what hashes to `hash` choose everything anew until `expires_at`, and ends every session that
    /// began up to `at`; `false` = there is no such person.
    async fn open_reset(
        &self,
        subject: &str,
        hash: &[u8; 32],
        expires_at: Timestamp,
        at: Timestamp,
        audit: Option<&AuditRow>,
    ) -> Result<bool, StoreError>;
    /// The person who may choose everything anew with what hashes to `hash`.
    async fn find_reset(&self, hash: &[u8; 32], now: Timestamp) -> Result<Option<Person>, StoreError>;
    /// Replaces how a person is recognised, by a reset, which ends with it, as does every session that began up to
    /// `now`; `false` = it has ended.
    async fn finish_reset(
        &self,
        hash: &[u8; 32],
        person: &Person,
        recovery: &[[u8; 32]],
        now: Timestamp,
        audit: Option<&AuditRow>,
    ) -> Result<bool, StoreError>;
}

fn person(row: &Row) -> Result<Person, StoreError> {
    Ok(Person {
        subject: row.text(0)?.to_owned(),
        login: row.text(1)?.to_owned(),
        credentials: Credentials {
            password: row.text(2)?.to_owned(),
            totp: row.opt_bytes(3)?.unwrap_or_default().to_vec(),
            totp_step: row.int(4)?,
        },
        sessions_after: rows::instant(row, 5)?,
        created_at: rows::instant(row, 6)?,
        reset_until: rows::opt_instant(row, 7)?,
    })
}

/// Replaces all recovery codes.
fn recovery_codes(subject: &str, codes: &[[u8; 32]]) -> Vec<Statement> {
    let clear = "DELETE FROM recovery_codes WHERE subject = $1";
    let add = "INSERT INTO recovery_codes (subject, hash) VALUES ($1, $2)";
    let mut statements = vec![Statement::new(clear, params![subject])];
    for code in codes {
        statements.push(Statement::new(add, params![subject, &code[..]]));
    }
    statements
}

/// The wait after one more failure, as SQL over the failures so far.
fn back_off_sql(back_off: &BackOff) -> String {
    let mut cases = Vec::new();
    let mut failures = 0;
    for waits in back_off.chunk_by(PartialEq::eq) {
        failures += waits.len();
        let wait_ms = waits.first().copied().unwrap_or_default();
        cases.push(format!("WHEN a.failures < {failures} THEN {wait_ms}"));
    }
    let last = back_off.last().copied().unwrap_or_default();
    format!("CASE {} ELSE {last} END", cases.join(" "))
}

#[async_trait]
impl<S: Sql> People for S {
    async fn has_people(&self) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM people LIMIT 1";
        Ok(!self.query(sql, Vec::new()).await?.is_empty())
    }

    async fn find_person(&self, subject: &str) -> Result<Option<Person>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM people WHERE subject = $1");
        let found = self.query(&sql, params![subject]).await?;
        found.first().map(person).transpose()
    }

    async fn find_login(&self, login_key: &str) -> Result<Option<Person>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM people WHERE login_key = $1");
        let found = self.query(&sql, params![login_key]).await?;
        found.first().map(person).transpose()
    }

    async fn insert_person(
        &self,
        person: &Person,
        login_key: &str,
        recovery: &[[u8; 32]],
        acceptance: &Acceptance,
    ) -> Result<Enrolled, StoreError> {
        let credentials = &person.credentials;
        let insert = Statement::new(
            "INSERT INTO people (subject, login, login_key, password, totp, totp_step, sessions_after, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (login_key) DO NOTHING",
            params![
                &*person.subject,
                &*person.login,
                login_key,
                &*credentials.password,
                &credentials.totp[..],
                credentials.totp_step,
                person.sessions_after.millis(),
                person.created_at.millis(),
            ],
        );
        let mut statements = vec![insert.required()];
        statements.extend(recovery_codes(&person.subject, recovery));
        statements.extend(accept(acceptance));
        if self.write_beside(statements).await?.is_some() {
            return Ok(Enrolled::Joined);
        }
        Ok(if self.find_login(login_key).await?.is_some() {
            Enrolled::LoginTaken
        } else {
            Enrolled::NotOpen
        })
    }

    async fn take_totp_step(&self, subject: &str, step: i64) -> Result<bool, StoreError> {
        let take = Statement::new(
            "UPDATE people SET totp_step = $2 WHERE subject = $1 AND totp_step < $2",
            params![subject, step],
        );
        Ok(self.write_beside(vec![take.required()]).await?.is_some())
    }

    async fn take_recovery_code(
        &self,
        subject: &str,
        hash: &[u8; 32],
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let take = Statement::new(
            "UPDATE recovery_codes SET used_at = $3 WHERE subject = $1 AND hash = $2 AND used_at IS NULL",
            params![subject, &hash[..], at.millis()],
        );
        Ok(self.write_beside(vec![take.required()]).await?.is_some())
    }

    async fn count_recovery_codes(&self, subject: &str) -> Result<i64, StoreError> {
        let sql = "SELECT COUNT(*) FROM recovery_codes WHERE subject = $1 AND used_at IS NULL";
        let found = self.query(sql, params![subject]).await?;
        found.first().map_or(Ok(0), |row| row.int(0))
    }

    async fn replace_recovery_codes(
        &self,
        subject: &str,
        codes: &[[u8; 32]],
        audit: Option<&AuditRow>,
    ) -> Result<(), StoreError> {
        let mut statements = recovery_codes(subject, codes);
        statements.extend(audit.map(audit_row));
        self.write_beside(statements).await.map(drop)
    }

    async fn take_attempt(
        &self,
        slot: i64,
        now: Timestamp,
        forget_before: Timestamp,
        back_off: &BackOff,
    ) -> Result<Attempt, StoreError> {
        let first = back_off.first().copied().unwrap_or_default();
        let wait = back_off_sql(back_off);
        let take = Statement::new(
            format!(
                "INSERT INTO sign_in_attempts AS a (slot, failures, next_try_at) VALUES ($1, 1, $4)
                 ON CONFLICT (slot) DO UPDATE SET
                     failures = CASE WHEN a.next_try_at < $3 THEN 1 ELSE a.failures + 1 END,
                     next_try_at = CASE WHEN a.next_try_at < $3 THEN $4 ELSE CAST($2 AS BIGINT) + {wait} END
                 WHERE a.next_try_at <= CAST($2 AS BIGINT)"
            ),
            params![
                slot,
                now.millis(),
                forget_before.millis(),
                now.plus_millis(first).millis()
            ],
        );
        if self.write_beside(vec![take.required()]).await?.is_some() {
            return Ok(Attempt::Allowed);
        }
        let sql = "SELECT next_try_at FROM sign_in_attempts WHERE slot = $1";
        let found = self.query(sql, params![slot]).await?;
        let until = found.first().map(|row| rows::instant(row, 0)).transpose()?;
        Ok(Attempt::NotBefore(until.unwrap_or(now)))
    }

    async fn return_attempt(&self, slot: i64, now: Timestamp) -> Result<(), StoreError> {
        let give_back = Statement::new(
            "UPDATE sign_in_attempts SET failures = failures - 1, next_try_at = $2 WHERE slot = $1 AND failures > 0",
            params![slot, now.millis()],
        );
        self.write_beside(vec![give_back]).await.map(drop)
    }

    async fn clear_attempts(&self, slot: i64) -> Result<(), StoreError> {
        let clear = Statement::new("DELETE FROM sign_in_attempts WHERE slot = $1", params![slot]);
        self.write_beside(vec![clear]).await.map(drop)
    }

    async fn end_sessions(&self, subject: &str, at: Timestamp) -> Result<(), StoreError> {
        let end = Statement::new(
            "UPDATE people SET sessions_after = $2 WHERE subject = $1 AND sessions_after < $2",
            params![subject, at.millis()],
        );
        self.write_beside(vec![end]).await.map(drop)
    }

    async fn open_reset(
        &self,
        subject: &str,
        hash: &[u8; 32],
        expires_at: Timestamp,
        at: Timestamp,
        audit: Option<&AuditRow>,
    ) -> Result<bool, StoreError> {
        let open = Statement::new(
            "UPDATE people SET reset_hash = $2, reset_expires_at = $3, sessions_after = $4 WHERE subject = $1",
            params![subject, &hash[..], expires_at.millis(), at.millis()],
        );
        let mut statements = vec![open.required()];
        statements.extend(audit.map(audit_row));
        Ok(self.write_beside(statements).await?.is_some())
    }

    async fn find_reset(&self, hash: &[u8; 32], now: Timestamp) -> Result<Option<Person>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM people WHERE reset_hash = $1 AND reset_expires_at > $2");
        let found = self.query(&sql, params![&hash[..], now.millis()]).await?;
        found.first().map(person).transpose()
    }

    async fn finish_reset(
        &self,
        hash: &[u8; 32],
        person: &Person,
        recovery: &[[u8; 32]],
        now: Timestamp,
        audit: Option<&AuditRow>,
    ) -> Result<bool, StoreError> {
        let credentials = &person.credentials;
        let replace = Statement::new(
            "UPDATE people SET password = $4, totp = $5, totp_step = $6, reset_hash = NULL, reset_expires_at = NULL,
                 sessions_after = CASE WHEN sessions_after < $3 THEN $3 ELSE sessions_after END
             WHERE subject = $1 AND reset_hash = $2 AND reset_expires_at > $3",
            params![
                &*person.subject,
                &hash[..],
                now.millis(),
                &*credentials.password,
                &credentials.totp[..],
                credentials.totp_step,
            ],
        );
        let mut statements = vec![replace.required()];
        statements.extend(recovery_codes(&person.subject, recovery));
        statements.extend(audit.map(audit_row));
        Ok(self.write_beside(statements).await?.is_some())
    }
}
