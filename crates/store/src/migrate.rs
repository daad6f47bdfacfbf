//! Migrations: numbered SQL files, the same numbers and names for both databases, applied once, in order.
//!
//! A file that was applied must never change (its SHA-256 is kept), and a schema newer than this binary is
//! refused.

use sha2::{Digest, Sha256};

use crate::error::StoreError;

/// One numbered migration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

macro_rules! migrations {
    ($dir:literal: $($version:literal $name:literal),+ $(,)?) => {
        &[$(Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!("../../../migrations/", $dir, "/", $name, ".sql")),
        }),+]
    };
}

pub(crate) const SQLITE: &[Migration] = migrations!("sqlite":
    1 "0001_foundation",
    2 "0002_money_in",
    3 "0003_webhooks",
    4 "0004_usage_drift",
    5 "0005_audit_chain",
    6 "0006_step_up",
    7 "0007_people",
    8 "0008_payouts",
    9 "0009_keys",
    10 "0010_paid_calls",
    11 "0011_imported_tools",
    12 "0012_quotes",
    13 "0013_agents",
    14 "0014_paid_call_terms",
    15 "0015_user_entries",
);
pub(crate) const POSTGRES: &[Migration] = migrations!("postgres":
    1 "0001_foundation",
    2 "0002_money_in",
    3 "0003_webhooks",
    4 "0004_usage_drift",
    5 "0005_audit_chain",
    6 "0006_step_up",
    7 "0007_people",
    8 "0008_payouts",
    9 "0009_keys",
    10 "0010_paid_calls",
    11 "0011_imported_tools",
    12 "0012_quotes",
    13 "0013_agents",
    14 "0014_paid_call_terms",
    15 "0015_user_entries",
);

pub(crate) const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL)";
pub(crate) const LIST: &str = "SELECT version, checksum FROM schema_migrations ORDER BY version";
pub(crate) const RECORD: &str = "INSERT INTO schema_migrations (version, name, checksum) VALUES ($1, $2, $3)";

impl Migration {
    pub(crate) fn checksum(&self) -> String {
        hex::encode(Sha256::digest(self.sql.as_bytes()))
    }
}

/// Which of `all` are still to be applied, given the versions and checksums that were.
pub(crate) fn pending<'a>(
    all: &'a [Migration],
    applied: &[(i64, String)],
) -> Result<Vec<&'a Migration>, StoreError> {
    for (version, checksum) in applied {
        match all.iter().find(|migration| migration.version == *version) {
            None => {
                return Err(StoreError::Schema(format!(
                    "the database has migration {version}, which this version does not know: use a newer one"
                )));
            }
            Some(known) if known.checksum() != *checksum => {
                return Err(StoreError::Schema(format!(
                    "migration {} was changed after it was applied",
                    known.name
                )));
            }
            Some(_) => {}
        }
    }
    Ok(all
        .iter()
        .filter(|migration| !applied.iter().any(|(version, _)| *version == migration.version))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_databases_have_the_same_numbers_and_names() {
        let names = |all: &[Migration]| all.iter().map(|m| (m.version, m.name)).collect::<Vec<_>>();
        assert_eq!(names(SQLITE), names(POSTGRES));
    }

    // Fault matrix 59
    #[test]
    fn a_newer_or_changed_schema_is_refused() {
        let newer = vec![(1, SQLITE[0].checksum()), (99, "x".to_owned())];
        assert!(matches!(pending(SQLITE, &newer), Err(StoreError::Schema(_))));
        assert!(matches!(
            pending(SQLITE, &[(1, "x".to_owned())]),
            Err(StoreError::Schema(_))
        ));
        assert_eq!(pending(SQLITE, &[]).unwrap().len(), SQLITE.len());
    }
}
