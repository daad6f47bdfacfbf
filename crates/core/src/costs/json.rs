//! JSON: rows, one a line or in an array, and pages of OpenAI's organization costs.

use serde_json::value::RawValue;

use super::{
    COST_NAMES, CURRENCY_NAMES, CostsError, DAY_NAMES, Days, END_NAMES, amount, check_currency, check_end,
    day,
};
use crate::json::Members;
use crate::time::{Day, Timestamp};

/// The whole text, so that a part of it can be placed in a line.
#[derive(Clone, Copy)]
struct Source<'a>(&'a str);

impl Source<'_> {
    /// The line that `part`, a part of the text, begins in.
    fn line(self, part: &str) -> u64 {
        let offset = part.as_ptr().addr().saturating_sub(self.0.as_ptr().addr());
        let before = self.0.get(..offset).unwrap_or_default();
        let breaks = before.bytes().filter(|byte| *byte == b'\n').count();
        u64::try_from(breaks).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn wrong(self, part: &str, column: &str, message: impl Into<String>) -> CostsError {
        CostsError::at(self.line(part), Some(column), message)
    }

    /// Reads `part` as a `T`; `what` says what it should be.
    fn parse<'a, T: serde::Deserialize<'a>>(self, part: &'a str, what: &str) -> Result<T, CostsError> {
        serde_json::from_str(part)
            .map_err(|error| CostsError::at(self.line(part), None, format!("{what}: {error}")))
    }
}

pub(super) fn read(text: &str, days: &mut Days) -> Result<(), CostsError> {
    let source = Source(text);
    for value in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
        let value = value.map_err(|error| {
            let line = u64::try_from(error.line()).unwrap_or(u64::MAX);
            CostsError::at(line, None, error.to_string())
        })?;
        let value = value.get();
        if value.starts_with('[') {
            for row in source.parse::<Vec<&RawValue>>(value, "an array of rows")? {
                row_or_page(source, row.get(), days)?;
            }
        } else {
            row_or_page(source, value, days)?;
        }
    }
    Ok(())
}

fn row_or_page(source: Source<'_>, text: &str, days: &mut Days) -> Result<(), CostsError> {
    let members = object(source, text, "a row")?;
    match members.get("data") {
        Some(data) if data.starts_with('[') => page(source, data, days),
        Some(_) | None => row(source, text, &members, days),
    }
}

fn object<'a>(source: Source<'_>, text: &'a str, what: &str) -> Result<Members<'a>, CostsError> {
    let members: Members<'a> = source.parse(text, what)?;
    match members.duplicate() {
        Some(name) => Err(source.wrong(text, name, "stands there twice")),
        None => Ok(members),
    }
}

fn row(source: Source<'_>, text: &str, members: &Members<'_>, days: &mut Days) -> Result<(), CostsError> {
    let wanted = |names: &[&'static str]| {
        one(source, text, members, names)?.ok_or_else(|| {
            CostsError::at(
                source.line(text),
                None,
                format!("there is no member {}", names.join(", ")),
            )
        })
    };
    let (name, written) = wanted(&DAY_NAMES)?;
    let wrong = |column: &'static str| move |message: String| source.wrong(text, column, message);
    let start = day(&string(source, written, name)?).map_err(wrong(name))?;
    let (name, written) = wanted(&COST_NAMES)?;
    let picos = amount(&number(source, written, name)?).map_err(wrong(name))?;
    if let Some((name, end)) = one(source, text, members, &END_NAMES)?
        && end != "null"
    {
        check_end(start, &string(source, end, name)?).map_err(wrong(name))?;
    }
    if let Some((name, currency)) = one(source, text, members, &CURRENCY_NAMES)?
        && currency != "null"
    {
        check_currency(&string(source, currency, name)?).map_err(wrong(name))?;
    }
    days.add(start, picos).map_err(wrong(name))
}

/// The one member that has one of `names`, with the characters of its value.
fn one<'a>(
    source: Source<'_>,
    text: &str,
    members: &Members<'a>,
    names: &[&'static str],
) -> Result<Option<(&'static str, &'a str)>, CostsError> {
    let mut found = names
        .iter()
        .filter_map(|name| members.get(name).map(|value| (*name, value)));
    match (found.next(), found.next()) {
        (Some((first, _)), Some((second, _))) => {
            Err(source.wrong(text, first, format!("{second} is there too: keep one of them")))
        }
        (first, _) => Ok(first),
    }
}

fn string(source: Source<'_>, written: &str, name: &str) -> Result<String, CostsError> {
    serde_json::from_str(written).map_err(|_other| source.wrong(written, name, "must be a string"))
}

/// The characters of a number, which may stand in a string.
fn number(source: Source<'_>, written: &str, name: &str) -> Result<String, CostsError> {
    if written.starts_with('"') {
        string(source, written, name)
    } else {
        Ok(written.to_owned())
    }
}

/// Buckets of OpenAI's costs, each of a day: `{start_time, end_time, results: [{amount: {value, currency}}]}`.
fn page(source: Source<'_>, data: &str, days: &mut Days) -> Result<(), CostsError> {
    for bucket in source.parse::<Vec<&RawValue>>(data, "data")? {
        let bucket = bucket.get();
        let members = object(source, bucket, "a bucket")?;
        let seconds = |name: &'static str| {
            let written = members
                .get(name)
                .ok_or_else(|| source.wrong(bucket, name, "is missing"))?;
            let seconds: i64 = serde_json::from_str(written)
                .map_err(|_other| source.wrong(written, name, "must be seconds since 1970"))?;
            Ok::<_, CostsError>(Timestamp::from_millis(seconds.saturating_mul(1000)))
        };
        let (start, end) = (seconds("start_time")?, seconds("end_time")?);
        let day = Day::of(start);
        if end <= start || end > day.end() {
            let message = "the bucket is not within one UTC day: ask for bucket_width=1d";
            return Err(source.wrong(bucket, "end_time", message));
        }
        // A day without results cost nothing, and that is said too.
        days.add(day, 0)
            .map_err(|message| source.wrong(bucket, "start_time", message))?;
        let results = members
            .get("results")
            .ok_or_else(|| source.wrong(bucket, "results", "is missing"))?;
        for result in source.parse::<Vec<&RawValue>>(results, "results")? {
            let picos = result_amount(source, result.get())?;
            days.add(day, picos)
                .map_err(|message| source.wrong(result.get(), "amount", message))?;
        }
    }
    Ok(())
}

fn result_amount(source: Source<'_>, result: &str) -> Result<i128, CostsError> {
    let members = object(source, result, "a result")?;
    let written = members
        .get("amount")
        .ok_or_else(|| source.wrong(result, "amount", "is missing"))?;
    let parts = object(source, written, "amount")?;
    let value = parts
        .get("value")
        .ok_or_else(|| source.wrong(written, "amount.value", "is missing"))?;
    let currency = parts
        .get("currency")
        .ok_or_else(|| source.wrong(written, "amount.currency", "is missing"))?;
    check_currency(&string(source, currency, "amount.currency")?)
        .map_err(|message| source.wrong(currency, "amount.currency", message))?;
    amount(&number(source, value, "amount.value")?)
        .map_err(|message| source.wrong(value, "amount.value", message))
}
