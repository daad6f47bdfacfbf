//! Pages of lists whose next one begins behind the last item of this one.

use serde_json::Value;
use turnpike_core::errors::ErrorCode;

use crate::error::AppError;

/// One page of a list.
#[derive(Clone, Debug)]
pub struct Page {
    /// The items.
    pub data: Vec<Value>,
    /// Where the next page begins; `None` = this is the last.
    pub next_cursor: Option<String>,
}

impl Page {
    /// The page of `limit` items out of `rows`, of which there is one more when another page follows.
    pub(crate) fn cut<T>(
        rows: &[T],
        limit: u32,
        cursor: impl Fn(&T) -> String,
        view: impl Fn(&T) -> Value,
    ) -> Self {
        let size = usize::try_from(limit).unwrap_or(usize::MAX);
        let shown = rows.get(..size).unwrap_or(rows);
        Self {
            data: shown.iter().map(view).collect(),
            next_cursor: shown.last().filter(|_| rows.len() > size).map(cursor),
        }
    }
}

/// Reads a cursor that is an id or a position.
///
/// # Errors
/// `CURSOR_INVALID`.
pub(crate) fn id_cursor<T: std::str::FromStr>(cursor: Option<&str>) -> Result<Option<T>, AppError> {
    cursor
        .map(str::parse)
        .transpose()
        .map_err(|_no_id| cursor_invalid())
}

pub(crate) fn cursor_invalid() -> AppError {
    let message = "the cursor is none that this list gave out";
    AppError::new(ErrorCode::CursorInvalid, message)
}
