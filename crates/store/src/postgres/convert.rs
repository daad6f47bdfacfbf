//! Between tokio-postgres's types and the store's.

use std::error::Error as StdError;

use bytes::BytesMut;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Error, Row as PgRow};
use uuid::Uuid;

use crate::error::StoreError;
use crate::sql::{Cell, Param, Row};

impl ToSql for Param {
    // The column decides how wide an integer is on the wire.
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(value) if *ty == Type::INT2 => i16::try_from(*value)?.to_sql(ty, out),
            Self::Int(value) if *ty == Type::INT4 => i32::try_from(*value)?.to_sql(ty, out),
            Self::Int(value) if *ty == Type::INT8 => value.to_sql(ty, out),
            Self::Text(value) if <&str as ToSql>::accepts(ty) => value.as_str().to_sql(ty, out),
            Self::Bytes(value) if *ty == Type::BYTEA => value.as_slice().to_sql(ty, out),
            Self::Uuid(value) if *ty == Type::UUID => value.to_sql(ty, out),
            Self::Int(_) | Self::Text(_) | Self::Bytes(_) | Self::Uuid(_) => {
                Err(format!("a parameter of another type stands where {ty} is wanted").into())
            }
        }
    }

    fn accepts(_ty: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

pub(super) fn row(row: &PgRow) -> Result<Row, Error> {
    fn cell<T>(value: Option<T>, present: impl FnOnce(T) -> Cell) -> Cell {
        value.map_or(Cell::Null, present)
    }
    let mut cells = Vec::with_capacity(row.len());
    for (index, column) in row.columns().iter().enumerate() {
        let ty = column.type_();
        cells.push(if *ty == Type::INT8 {
            cell(row.try_get::<_, Option<i64>>(index)?, Cell::Int)
        } else if *ty == Type::INT4 {
            cell(row.try_get::<_, Option<i32>>(index)?, |value| {
                Cell::Int(i64::from(value))
            })
        } else if *ty == Type::INT2 {
            cell(row.try_get::<_, Option<i16>>(index)?, |value| {
                Cell::Int(i64::from(value))
            })
        } else if *ty == Type::BYTEA {
            cell(row.try_get::<_, Option<Vec<u8>>>(index)?, Cell::Bytes)
        } else if *ty == Type::UUID {
            cell(row.try_get::<_, Option<Uuid>>(index)?, Cell::Uuid)
        } else {
            cell(row.try_get::<_, Option<String>>(index)?, Cell::Text)
        });
    }
    Ok(Row(cells))
}

/// What a failed statement says about the statement and about the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The same key exists already.
    Duplicate,
    /// The transaction was rolled back for the sake of another; it may be run again.
    Contention,
    /// The server refuses the values or the text of this statement, and would do so again.
    Refused,
    /// The server or the way to it is not there, or will not be for this session.
    Gone,
}

pub(super) fn fault(error: &Error) -> Fault {
    let Some(state) = error.code() else {
        // Without an answer of the server: only values that cannot be sent are the statement's own fault.
        let local = error
            .source()
            .is_some_and(|source| source.downcast_ref::<std::io::Error>().is_none());
        let lost = error.is_closed() || !local;
        return if lost { Fault::Gone } else { Fault::Refused };
    };
    if *state == SqlState::UNIQUE_VIOLATION {
        return Fault::Duplicate;
    }
    let gave_up = [SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED];
    if is_victim(error) || gave_up.contains(state) {
        return Fault::Contention;
    }
    // Data exceptions, violated constraints, statements that are wrong.
    match state.code().get(..2) {
        Some("22" | "23" | "42") => Fault::Refused,
        _ => Fault::Gone,
    }
}

/// Whether the server chose this transaction to be rolled back, so that another could go on.
pub(super) fn is_victim(error: &Error) -> bool {
    let code = error.code();
    code == Some(&SqlState::T_R_DEADLOCK_DETECTED) || code == Some(&SqlState::T_R_SERIALIZATION_FAILURE)
}

/// What to write into a log: the server's message and code, never the values of a row.
pub(super) fn describe(error: &Error) -> String {
    if let Some(answer) = error.as_db_error() {
        return format!("{} ({})", answer.message(), answer.code().code());
    }
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

pub(super) fn store_error(error: &Error) -> StoreError {
    match fault(error) {
        Fault::Duplicate => StoreError::AlreadyExists,
        Fault::Contention | Fault::Gone => StoreError::Unavailable(describe(error)),
        Fault::Refused => StoreError::Defect(describe(error)),
    }
}
