//! A provider's own account of what it costs, read into an exact amount for each UTC day.
//!
//! Three forms, told apart by their first character: CSV with a header, JSON objects (one a line, or an array of
//! them), and pages of OpenAI's organization costs. Amounts are read from their characters, never as floats, and
//! summed in pUSD; what a row has below a pUSD (the noise of a float) is rounded. A day is rounded once, half up, to
//! µUSD. Either every row can be used or nothing is: a wrong one is named with its line.

mod csv;
mod json;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::money::{Micros, PICOS_PER_MICRO};
use crate::pricing::Decimal;
use crate::time::Day;

/// Longest file that is read, in bytes.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Most days in one file.
const MAX_DAYS: usize = 4000;
/// pUSD in a US dollar, as a power of ten.
const PICO_DIGITS: u32 = 12;

/// Names of the member that says the day.
const DAY_NAMES: [&str; 4] = ["date", "day", "start_date", "usage_date"];
/// Names of the member that says the amount.
const COST_NAMES: [&str; 5] = ["cost", "cost_usd", "amount", "amount_usd", "total_cost"];
/// Names of the member that says where a row's time ends.
const END_NAMES: [&str; 1] = ["end_date"];
/// Names of the member that says the currency.
const CURRENCY_NAMES: [&str; 1] = ["currency"];

/// What a provider says a day cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DayCost {
    /// Which day.
    pub day: Day,
    /// How much, zero or more.
    pub usd: Micros,
}

/// Why a file was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{message}", line_prefix(*line), column_prefix(column.as_deref()))]
pub struct CostsError {
    /// Where, from 1; `None` when the file as a whole is meant.
    pub line: Option<u64>,
    /// The column or member.
    pub column: Option<String>,
    /// What is wrong.
    pub message: String,
}

fn line_prefix(line: Option<u64>) -> String {
    line.map(|line| format!("line {line}: ")).unwrap_or_default()
}

fn column_prefix(column: Option<&str>) -> String {
    column.map(|column| format!("{column}: ")).unwrap_or_default()
}

impl CostsError {
    fn whole(message: impl Into<String>) -> Self {
        Self {
            line: None,
            column: None,
            message: message.into(),
        }
    }

    fn at(line: u64, column: Option<&str>, message: impl Into<String>) -> Self {
        Self {
            line: Some(line),
            column: column.map(str::to_owned),
            message: message.into(),
        }
    }
}

/// Reads a provider's export: the days it names, in order.
///
/// # Errors
/// [`CostsError`] for the first thing that cannot be used; nothing of the file is taken then.
pub fn read_costs(bytes: &[u8]) -> Result<Vec<DayCost>, CostsError> {
    if bytes.len() > MAX_BYTES {
        return Err(CostsError::whole(format!(
            "the file is larger than {} MiB",
            MAX_BYTES / (1024 * 1024)
        )));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| CostsError::whole(format!("the file is not UTF-8 text: {error}")))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut days = Days::default();
    match text.trim_start().chars().next() {
        None => return Err(CostsError::whole("the file is empty")),
        Some('{' | '[') => json::read(text, &mut days)?,
        Some(_) => csv::read(text, &mut days)?,
    }
    days.finish()
}

/// The days so far, in pUSD.
#[derive(Default)]
struct Days(BTreeMap<Day, i128>);

impl Days {
    /// Adds `picos` to `day`; says why when it cannot.
    fn add(&mut self, day: Day, picos: i128) -> Result<(), String> {
        if self.0.len() >= MAX_DAYS && !self.0.contains_key(&day) {
            return Err(format!("there are more than {MAX_DAYS} days"));
        }
        let sum = self.0.entry(day).or_default();
        *sum = sum.checked_add(picos).ok_or("the day's sum is too large")?;
        Ok(())
    }

    fn finish(self) -> Result<Vec<DayCost>, CostsError> {
        if self.0.is_empty() {
            return Err(CostsError::whole("there is no row in it"));
        }
        self.0
            .into_iter()
            .map(|(day, picos)| {
                if picos < 0 {
                    return Err(CostsError::whole(format!("{day}: the day's sum is below zero")));
                }
                let usd = half_up(picos)
                    .ok_or_else(|| CostsError::whole(format!("{day}: the day's sum is too large")))?;
                Ok(DayCost { day, usd })
            })
            .collect()
    }
}

/// pUSD, zero or more, as µUSD.
fn half_up(picos: i128) -> Option<Micros> {
    let micros = picos
        .checked_add(PICOS_PER_MICRO.checked_div(2)?)?
        .checked_div(PICOS_PER_MICRO)?;
    i64::try_from(micros).ok().map(Micros::new)
}

/// An amount of US dollars as it is written, in pUSD.
fn amount(text: &str) -> Result<i128, String> {
    let malformed = || {
        let shown: String = text.chars().take(40).collect();
        format!("{shown:?} is no amount: write plain US dollars such as 12.5 or -0.25")
    };
    let magnitude = text.strip_prefix('-').unwrap_or(text);
    let number = Decimal::parse(magnitude)
        .filter(|number| !number.is_negative())
        .ok_or_else(malformed)?;
    let (picos, _exact) = number.scaled(PICO_DIGITS).ok_or("the amount is too large")?;
    if magnitude.len() == text.len() {
        Ok(picos)
    } else {
        picos.checked_neg().ok_or_else(malformed)
    }
}

fn day(text: &str) -> Result<Day, String> {
    text.parse().map_err(|_no_date| {
        let shown: String = text.chars().take(40).collect();
        format!("{shown:?} is no date: write 2026-11-01")
    })
}

/// Refuses a row that is about more than the one day.
fn check_end(start: Day, end: &str) -> Result<(), String> {
    let end = day(end)?;
    if end == start || end == start.next() {
        Ok(())
    } else {
        Err("the row is about more than one day".to_owned())
    }
}

fn check_currency(text: &str) -> Result<(), String> {
    if text.is_empty() || text.eq_ignore_ascii_case("usd") {
        Ok(())
    } else {
        Err("only US dollars can be compared".to_owned())
    }
}
