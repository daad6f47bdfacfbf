//! CSV with a header; columns that are not asked for are passed over.

use ::csv::{Reader, ReaderBuilder, StringRecord, Trim};

use super::{
    COST_NAMES, CURRENCY_NAMES, CostsError, DAY_NAMES, Days, END_NAMES, amount, check_currency, check_end,
    day,
};

/// Where the columns stand.
struct Columns {
    day: usize,
    cost: usize,
    end: Option<usize>,
    currency: Option<usize>,
}

pub(super) fn read(text: &str, days: &mut Days) -> Result<(), CostsError> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| malformed(&error))?.clone();
    let columns = Columns {
        day: one(&header, &DAY_NAMES)?.ok_or_else(|| missing(&DAY_NAMES))?,
        cost: one(&header, &COST_NAMES)?.ok_or_else(|| missing(&COST_NAMES))?,
        end: one(&header, &END_NAMES)?,
        currency: one(&header, &CURRENCY_NAMES)?,
    };
    let mut record = StringRecord::new();
    while next(&mut reader, &mut record)? {
        let line = record.position().map_or(0, ::csv::Position::line);
        let cell = |index: usize| record.get(index).unwrap_or_default();
        let wrong = |index: usize| {
            let column = header.get(index).unwrap_or_default();
            move |message: String| CostsError::at(line, Some(column), message)
        };
        let start = day(cell(columns.day)).map_err(wrong(columns.day))?;
        let picos = amount(cell(columns.cost)).map_err(wrong(columns.cost))?;
        if let Some(end) = columns.end.filter(|end| !cell(*end).is_empty()) {
            check_end(start, cell(end)).map_err(wrong(end))?;
        }
        if let Some(currency) = columns.currency {
            check_currency(cell(currency)).map_err(wrong(currency))?;
        }
        days.add(start, picos).map_err(wrong(columns.cost))?;
    }
    Ok(())
}

fn next(reader: &mut Reader<&[u8]>, record: &mut StringRecord) -> Result<bool, CostsError> {
    reader.read_record(record).map_err(|error| malformed(&error))
}

/// The one column that has one of `names`.
fn one(header: &StringRecord, names: &[&str]) -> Result<Option<usize>, CostsError> {
    let mut found = header
        .iter()
        .enumerate()
        .filter(|(_, column)| names.iter().any(|name| column.eq_ignore_ascii_case(name)));
    match (found.next(), found.next()) {
        (Some((_, first)), Some((_, second))) => Err(CostsError::at(
            1,
            Some(first),
            format!("{second} is there too: keep one of them"),
        )),
        (first, _) => Ok(first.map(|(index, _)| index)),
    }
}

fn missing(names: &[&str]) -> CostsError {
    CostsError::at(1, None, format!("there is no column {}", names.join(", ")))
}

fn malformed(error: &::csv::Error) -> CostsError {
    let line = error.position().map(::csv::Position::line);
    let message = if let ::csv::ErrorKind::UnequalLengths {
        expected_len, len, ..
    } = error.kind()
    {
        format!("{len} cells under {expected_len} columns")
    } else {
        error.to_string()
    };
    CostsError {
        line,
        column: None,
        message,
    }
}
