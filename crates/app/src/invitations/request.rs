//! What requests about invitations say.

use turnpike_core::access::Role;

use crate::error::AppError;
use crate::fields::{Fields, Nullable};

/// How long an invitation can be accepted unless its maker says otherwise: a week.
pub const DEFAULT_LIFETIME_SECS: i64 = 7 * 86_400;
/// An hour to thirty days.
const LIFETIME_SECS: std::ops::RangeInclusive<i64> = 3600..=30 * 86_400;
/// Longest note.
const MAX_NOTE: usize = 254;

/// `{role, note?, expiresIn?}`.
#[derive(Debug)]
pub(super) struct NewInvitation {
    pub(super) role: Role,
    pub(super) note: Option<String>,
    pub(super) lifetime_secs: i64,
}

impl NewInvitation {
    pub(super) fn parse(raw: &[u8]) -> Result<Self, AppError> {
        let mut fields = Fields::parse(raw, &["role", "note", "expiresIn"])?;
        let role = fields.required("role", Fields::text)?;
        let role = Role::parse(&role).ok_or_else(|| {
            let known: Vec<&str> = Role::ALL.iter().map(|role| role.as_str()).collect();
            AppError::invalid("role", format!("must be one of {}", known.join(", ")))
        })?;
        let note = match fields.nullable("note", |fields, name| fields.words(name, 1..=MAX_NOTE))? {
            Nullable::Value(note) => Some(note),
            Nullable::Absent | Nullable::Null => None,
        };
        let lifetime = fields.integer("expiresIn", LIFETIME_SECS)?;
        Ok(Self {
            role,
            note,
            lifetime_secs: lifetime.unwrap_or(DEFAULT_LIFETIME_SECS),
        })
    }
}

/// `{token}`.
pub(super) fn token_of(raw: &[u8]) -> Result<String, AppError> {
    let mut fields = Fields::parse(raw, &["token"])?;
    fields.required("token", |fields, name| fields.words(name, 1..=128))
}
