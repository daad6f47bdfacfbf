//! Instants as UTC milliseconds, and the calendar windows that spend limits are counted in.
//!
//! No clock is read here: an instant is always an argument.

use std::fmt;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;

/// Milliseconds in a day.
const DAY_MS: i64 = 86_400_000;

/// An instant, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The instant `millis` milliseconds after the epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// This instant moved by `millis`.
    #[must_use]
    pub const fn plus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Milliseconds from `earlier` to this instant.
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The UTC day, counted from the epoch.
    pub const fn day(self) -> i64 {
        self.0.div_euclid(DAY_MS)
    }

    /// The UTC calendar month, as `year × 12 + (month − 1)`.
    pub fn month(self) -> i64 {
        self.date().map_or(0, |date| {
            i64::from(date.year())
                .saturating_mul(12)
                .saturating_add(i64::from(date.month()).saturating_sub(1))
        })
    }

    /// The first instant of the next UTC day.
    #[must_use]
    pub const fn next_day(self) -> Self {
        Self(self.day().saturating_add(1).saturating_mul(DAY_MS))
    }

    /// The first instant of the next UTC month.
    #[must_use]
    pub fn next_month(self) -> Self {
        self.date()
            .and_then(|date| {
                date.first_of_month()
                    .checked_add(jiff::Span::new().months(1))
                    .ok()
            })
            .and_then(|date| date.to_zoned(TimeZone::UTC).ok())
            .map_or(self, |start| Self(start.timestamp().as_millisecond()))
    }

    fn date(self) -> Option<Date> {
        let instant = jiff::Timestamp::from_millisecond(self.0).ok()?;
        Some(instant.to_zoned(TimeZone::UTC).date())
    }
}

/// ISO 8601 in UTC with milliseconds: `2026-11-01T12:00:00.000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(instant) => write!(f, "{instant:.3}"),
            Err(_out_of_range) => write!(f, "{}ms", self.0),
        }
    }
}

impl std::str::FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<jiff::Timestamp>()
            .map(|instant| Self(instant.as_millisecond()))
    }
}

/// A UTC day, counted from the epoch. On the wire `2026-11-01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(i64);

impl Day {
    /// The day of that number.
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// The day that `at` is in.
    pub const fn of(at: Timestamp) -> Self {
        Self(at.day())
    }

    /// Its number, from the epoch.
    pub const fn number(self) -> i64 {
        self.0
    }

    /// Its first instant.
    pub const fn start(self) -> Timestamp {
        Timestamp(self.0.saturating_mul(DAY_MS))
    }

    /// The first instant after it.
    pub const fn end(self) -> Timestamp {
        self.next().start()
    }

    /// The day after it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The day before it.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// Whether nothing more can begin in it at `now`.
    pub const fn is_over(self, now: Timestamp) -> bool {
        self.0 < now.day()
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.start().date() {
            Some(date) => write!(f, "{date}"),
            None => write!(f, "day {}", self.0),
        }
    }
}

impl std::str::FromStr for Day {
    type Err = jiff::Error;

    /// Reads a date (`2026-11-01`) or the instant of an ISO timestamp; one without an offset is taken as UTC.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(instant) = text.parse::<jiff::Timestamp>() {
            return Ok(Self::of(Timestamp(instant.as_millisecond())));
        }
        let start = text.parse::<Date>()?.to_zoned(TimeZone::UTC)?;
        Ok(Self::of(Timestamp(start.timestamp().as_millisecond())))
    }
}

impl Serialize for Day {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Day {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_read_and_written_as_dates() {
        let day: Day = "2028-02-29".parse().unwrap();
        assert_eq!(day.to_string(), "2028-02-29");
        assert_eq!(day.next().to_string(), "2028-03-01");
        assert_eq!(day.start().to_string(), "2028-02-29T00:00:00.000Z");
        assert_eq!(day.end().to_string(), "2028-03-01T00:00:00.000Z");
        for same in [
            "2028-02-29T23:59:59Z",
            "2028-02-29T00:00:00+00:00",
            "2028-03-01T00:30:00+01:00",
            "2028-02-29 10:00:00",
            "2028-02-29T10:00:00",
        ] {
            assert_eq!(same.parse::<Day>().unwrap(), day, "{same}");
        }
        for bad in ["", "2028-02-30", "29.02.2028", "2028", "tomorrow"] {
            assert!(bad.parse::<Day>().is_err(), "{bad}");
        }
        assert!(day.is_over(day.end()) && !day.is_over(day.end().plus_millis(-1)));
    }

    #[test]
    fn windows_follow_the_utc_calendar() {
        let at: Timestamp = "2026-12-31T23:59:59.999Z".parse().unwrap();
        assert_eq!(at.to_string(), "2026-12-31T23:59:59.999Z");
        assert_eq!(at.month(), 2026 * 12 + 11);
        assert_eq!(at.next_day().to_string(), "2027-01-01T00:00:00.000Z");
        assert_eq!(at.next_month().to_string(), "2027-01-01T00:00:00.000Z");
        let leap: Timestamp = "2028-01-31T10:00:00Z".parse().unwrap();
        assert_eq!(leap.next_month().to_string(), "2028-02-01T00:00:00.000Z");
    }
}
