//! Between rusqlite's types and the store's.

use rusqlite::ffi::{SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_ROWID, SQLITE_CONSTRAINT_UNIQUE};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{ErrorCode, ToSql};

use crate::error::StoreError;
use crate::sql::{Cell, Param, Row};

impl ToSql for Param {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Owned(Value::Null),
            Self::Int(value) => ToSqlOutput::Owned(Value::Integer(*value)),
            Self::Text(value) => ToSqlOutput::Borrowed(ValueRef::Text(value.as_bytes())),
            Self::Bytes(value) => ToSqlOutput::Borrowed(ValueRef::Blob(value)),
            Self::Uuid(value) => ToSqlOutput::Borrowed(ValueRef::Blob(value.as_bytes())),
        })
    }
}

pub(crate) fn row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let columns = row.as_ref().column_count();
    let mut cells = Vec::with_capacity(columns);
    for index in 0..columns {
        cells.push(match row.get_ref(index)? {
            ValueRef::Null => Cell::Null,
            ValueRef::Integer(value) => Cell::Int(value),
            // No column of the schema holds a float; one that appears is reported as a wrong type.
            ValueRef::Real(_) => Cell::Text("float".to_owned()),
            ValueRef::Text(value) => Cell::Text(String::from_utf8_lossy(value).into_owned()),
            ValueRef::Blob(value) => Cell::Bytes(value.to_vec()),
        });
    }
    Ok(Row(cells))
}

/// Runs a query whose parameters are numbered `$1`, `$2`, … in any order of appearance.
pub(crate) fn bind(statement: &mut rusqlite::Statement<'_>, params: &[Param]) -> rusqlite::Result<()> {
    for (position, param) in params.iter().enumerate() {
        if let Some(index) = statement.parameter_index(&format!("${}", position + 1))? {
            statement.raw_bind_parameter(index, param)?;
        }
    }
    Ok(())
}

/// Whether a row is there already; a constraint of another kind is a defect.
fn is_duplicate(error: &rusqlite::Error) -> bool {
    let extended = error.sqlite_error().map(|error| error.extended_code);
    matches!(
        extended,
        Some(SQLITE_CONSTRAINT_PRIMARYKEY | SQLITE_CONSTRAINT_UNIQUE | SQLITE_CONSTRAINT_ROWID)
    )
}

#[expect(clippy::needless_pass_by_value, reason = "fits `map_err`")]
pub(crate) fn store_error(error: rusqlite::Error) -> StoreError {
    let code = error.sqlite_error_code();
    match code {
        Some(ErrorCode::ConstraintViolation) if is_duplicate(&error) => StoreError::AlreadyExists,
        Some(
            ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::ReadOnly,
        ) => StoreError::Unavailable(error.to_string()),
        _ => StoreError::Defect(error.to_string()),
    }
}
