//! What both databases have in common: parameters, cells, and a connection that speaks `$1` SQL.
//!
//! Instants and amounts are BIGINT, enums their numbers, ids UUID (16 bytes in SQLite), documents TEXT.

use std::borrow::Cow;

use async_trait::async_trait;
use uuid::Uuid;

use crate::error::StoreError;
use crate::records::AuditRow;

/// A value bound to a statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Param {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
    Uuid(Uuid),
}

impl From<i64> for Param {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<i16> for Param {
    fn from(value: i16) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<bool> for Param {
    fn from(value: bool) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<&str> for Param {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Param {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&[u8]> for Param {
    fn from(value: &[u8]) -> Self {
        Self::Bytes(value.to_vec())
    }
}

impl From<Uuid> for Param {
    fn from(value: Uuid) -> Self {
        Self::Uuid(value)
    }
}

impl<T: Into<Param>> From<Option<T>> for Param {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Builds a parameter list.
macro_rules! params {
    ($($value:expr),* $(,)?) => { vec![$($crate::sql::Param::from($value)),*] };
}
pub(crate) use params;

/// A value read from a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
    Uuid(Uuid),
}

/// A row read from the database.
#[derive(Clone, Debug)]
pub(crate) struct Row(pub(crate) Vec<Cell>);

impl Row {
    fn cell(&self, index: usize) -> Result<&Cell, StoreError> {
        self.0
            .get(index)
            .ok_or_else(|| StoreError::Corrupt(format!("no column {index}")))
    }

    fn wrong(index: usize, wanted: &str) -> StoreError {
        StoreError::Corrupt(format!("column {index} is no {wanted}"))
    }

    pub(crate) fn opt_int(&self, index: usize) -> Result<Option<i64>, StoreError> {
        match self.cell(index)? {
            Cell::Null => Ok(None),
            Cell::Int(value) => Ok(Some(*value)),
            Cell::Text(_) | Cell::Bytes(_) | Cell::Uuid(_) => Err(Self::wrong(index, "integer")),
        }
    }

    pub(crate) fn int(&self, index: usize) -> Result<i64, StoreError> {
        self.opt_int(index)?.ok_or_else(|| Self::wrong(index, "integer"))
    }

    pub(crate) fn small(&self, index: usize) -> Result<i16, StoreError> {
        i16::try_from(self.int(index)?).map_err(|_overflow| Self::wrong(index, "small integer"))
    }

    pub(crate) fn opt_text(&self, index: usize) -> Result<Option<&str>, StoreError> {
        match self.cell(index)? {
            Cell::Null => Ok(None),
            Cell::Text(value) => Ok(Some(value)),
            Cell::Int(_) | Cell::Bytes(_) | Cell::Uuid(_) => Err(Self::wrong(index, "text")),
        }
    }

    pub(crate) fn text(&self, index: usize) -> Result<&str, StoreError> {
        self.opt_text(index)?.ok_or_else(|| Self::wrong(index, "text"))
    }

    pub(crate) fn opt_bytes(&self, index: usize) -> Result<Option<&[u8]>, StoreError> {
        match self.cell(index)? {
            Cell::Null => Ok(None),
            Cell::Bytes(value) => Ok(Some(value)),
            Cell::Int(_) | Cell::Text(_) | Cell::Uuid(_) => Err(Self::wrong(index, "byte string")),
        }
    }

    pub(crate) fn hash(&self, index: usize) -> Result<[u8; 32], StoreError> {
        self.opt_bytes(index)?
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| Self::wrong(index, "hash of 32 bytes"))
    }

    pub(crate) fn opt_uuid(&self, index: usize) -> Result<Option<Uuid>, StoreError> {
        match self.cell(index)? {
            Cell::Null => Ok(None),
            Cell::Uuid(value) => Ok(Some(*value)),
            Cell::Bytes(value) => Uuid::from_slice(value)
                .map(Some)
                .map_err(|_wrong_length| Self::wrong(index, "UUID")),
            Cell::Int(_) | Cell::Text(_) => Err(Self::wrong(index, "UUID")),
        }
    }

    pub(crate) fn uuid(&self, index: usize) -> Result<Uuid, StoreError> {
        self.opt_uuid(index)?.ok_or_else(|| Self::wrong(index, "UUID"))
    }
}

/// A statement with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) sql: Cow<'static, str>,
    pub(crate) params: Vec<Param>,
    /// Whether the transaction is undone when this touches no row.
    pub(crate) required: bool,
    /// The row of the audit log that this appends; its SQL depends on the log's head.
    pub(crate) audit: Option<Box<AuditRow>>,
}

impl Statement {
    pub(crate) fn new(sql: impl Into<Cow<'static, str>>, params: Vec<Param>) -> Self {
        Self {
            sql: sql.into(),
            params,
            required: false,
            audit: None,
        }
    }

    /// The same, without which nothing of its transaction happens: it must touch a row.
    pub(crate) fn required(self) -> Self {
        Self {
            required: true,
            ..self
        }
    }
}

/// Receives the rows of one query of a snapshot: which query, and the row. `false` ends the snapshot.
pub(crate) type RowSink<'a> = &'a mut (dyn FnMut(usize, Row) -> Result<bool, StoreError> + Send);

/// A database that runs the same SQL text.
#[async_trait]
pub(crate) trait Sql: Send + Sync {
    /// Reads rows.
    async fn query(&self, sql: &str, params: Vec<Param>) -> Result<Vec<Row>, StoreError>;
    /// Runs statements in one transaction; says how many rows each touched. When the first one touches none,
    /// nothing is written.
    async fn write(&self, statements: Vec<Statement>) -> Result<Vec<u64>, StoreError>;
    /// Runs statements on tables that no batch keeps rows of, in one transaction, beside the batches; says how many
    /// rows each touched. `None` = a required one touched none, and nothing is written.
    async fn write_beside(&self, statements: Vec<Statement>) -> Result<Option<Vec<u64>>, StoreError>;
    /// Feeds the rows of `queries`, one after the other, out of one snapshot.
    async fn snapshot(&self, queries: Vec<Statement>, sink: RowSink<'_>) -> Result<(), StoreError>;
    /// The SQL text of "member `$n` of the JSON object in `column`, if it is a string".
    fn json_member(&self, column: &str, param: usize) -> String;
    /// What makes a selection pass over rows that another transaction has locked, and lock the others.
    fn skip_locked(&self) -> &'static str;
    /// A query for the database's own clock, in milliseconds; `None` = it runs in this process.
    fn clock_sql(&self) -> Option<&'static str>;
    /// What keeps the selected rows of table `w` as they are until the transaction ends.
    fn share_w(&self) -> &'static str;
}
