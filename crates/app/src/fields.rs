//! Members of a request's body: each is taken once by its name and kind, and none may be left over.
//!
//! What is refused is named in `details` by its path.

use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::money::Micros;

use crate::error::AppError;
use crate::json::parse_object;

/// Most slugs in one list.
const MAX_SLUGS: usize = 200;
/// Longest slug.
const MAX_SLUG: usize = 256;
/// Most unknown members that a refusal names.
const MAX_NAMED: usize = 20;
/// Most characters of an unknown member's name that a refusal shows.
const MAX_SHOWN: usize = 100;

/// What is left of a body.
///
/// Name every member that the operation knows, then take each by its kind:
///
/// ```text
/// let mut fields = Fields::parse(raw, &["url", "limit", "description"])?;
/// let url = fields.required("url", |fields, name| fields.words(name, 1..=2048))?;
/// let limit = fields.integer("limit", 1..=100)?.unwrap_or(20);
/// let description = fields.nullable("description", |fields, name| fields.words(name, 0..=200))?;
/// ```
///
/// A take gives `None` for an absent member and `VALIDATION_ERROR` for one of another kind or out of its bounds. Null
/// is another kind, unless the member is taken with [`Self::nullable`] or the body is read
/// [without nulls](Self::without_nulls). Of several wrong members, the one that is taken first is reported.
#[derive(Debug)]
pub(crate) struct Fields {
    members: Map<String, Value>,
    /// What stands before the names of members in what is reported: `pricing.`.
    within: String,
}

/// A member that may be null, where null says something else than its absence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Nullable<T> {
    /// Not in the body.
    Absent,
    /// Null.
    Null,
    /// Anything else.
    Value(T),
}

impl<T> Nullable<T> {
    /// What stands afterwards where `current` stood: absence leaves it, null takes it away.
    pub(crate) fn or(self, current: Option<T>) -> Option<T> {
        match self {
            Self::Absent => current,
            Self::Null => None,
            Self::Value(value) => Some(value),
        }
    }
}

impl Fields {
    const fn of(members: Map<String, Value>, within: String) -> Self {
        Self { members, within }
    }

    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.within)
    }

    fn invalid(&self, name: &str, message: impl Into<String>) -> AppError {
        AppError::invalid(&self.path(name), message)
    }

    /// The body `raw`, which may have the members `known`; no body counts as one without members.
    ///
    /// # Errors
    /// `INVALID_JSON` for what is no object and for a member that stands twice, `UNKNOWN_FIELD`.
    pub(crate) fn parse(raw: &[u8], known: &[&str]) -> Result<Self, AppError> {
        Self::read(raw)?.only(known)
    }

    /// The body `raw`, whatever its members, for an operation that looks at some of them before it asks for
    /// [the known ones only](Self::only).
    ///
    /// # Errors
    /// `INVALID_JSON`.
    pub(crate) fn read(raw: &[u8]) -> Result<Self, AppError> {
        let members = if raw.is_empty() {
            Map::new()
        } else {
            parse_object(raw)?
        };
        Ok(Self::of(members, String::new()))
    }

    /// The same, where no member is another than `known`.
    ///
    /// # Errors
    /// `UNKNOWN_FIELD`, with one of `details` for each, up to a bound.
    pub(crate) fn only(self, known: &[&str]) -> Result<Self, AppError> {
        let unknown: Vec<String> = self
            .members
            .keys()
            .filter(|name| !known.contains(&name.as_str()))
            .take(MAX_NAMED)
            .map(|name| self.path(&name.chars().take(MAX_SHOWN).collect::<String>()))
            .collect();
        let Some(first) = unknown.first() else {
            return Ok(self);
        };
        let message = format!("unknown field `{first}`, expected one of {}", known.join(", "));
        let details: Vec<Value> = unknown
            .iter()
            .map(|name| json!({ "path": name, "message": "is unknown" }))
            .collect();
        Err(AppError::new(ErrorCode::UnknownField, message).with("details", details))
    }

    /// The same, where a member that is null counts as absent.
    pub(crate) fn without_nulls(mut self) -> Self {
        self.members.retain(|_name, value| !value.is_null());
        self
    }

    /// Whether the member is there, null or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.members.remove(name)
    }

    /// A member that must be there, as `take` takes it.
    pub(crate) fn required<T>(
        &mut self,
        name: &str,
        take: impl FnOnce(&mut Self, &str) -> Result<Option<T>, AppError>,
    ) -> Result<T, AppError> {
        take(self, name)?.ok_or_else(|| self.invalid(name, "is required"))
    }

    /// A member that may be null, otherwise as `take` takes it.
    pub(crate) fn nullable<T>(
        &mut self,
        name: &str,
        take: impl FnOnce(&mut Self, &str) -> Result<Option<T>, AppError>,
    ) -> Result<Nullable<T>, AppError> {
        if self.members.get(name).is_some_and(Value::is_null) {
            self.take(name);
            return Ok(Nullable::Null);
        }
        Ok(take(self, name)?.map_or(Nullable::Absent, Nullable::Value))
    }

    /// A string.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, AppError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.invalid(name, "must be a string")),
        }
    }

    /// A string of so many characters, none of them a control character.
    pub(crate) fn words(
        &mut self,
        name: &str,
        length: RangeInclusive<usize>,
    ) -> Result<Option<String>, AppError> {
        let text = self.text(name)?;
        let fits =
            |text: &String| length.contains(&text.chars().count()) && !text.chars().any(char::is_control);
        if text.as_ref().is_none_or(fits) {
            return Ok(text);
        }
        let message = format!("must be {} without control characters", characters(&length));
        Err(self.invalid(name, message))
    }

    /// A string of so many characters, which may have line breaks; only NUL is refused, as PostgreSQL cannot store it.
    pub(crate) fn prose(
        &mut self,
        name: &str,
        length: RangeInclusive<usize>,
    ) -> Result<Option<String>, AppError> {
        let text = self.text(name)?;
        let fits = |text: &String| length.contains(&text.chars().count()) && !text.contains('\0');
        if text.as_ref().is_none_or(fits) {
            return Ok(text);
        }
        let message = format!("must be {} without NUL", characters(&length));
        Err(self.invalid(name, message))
    }

    /// True or false.
    pub(crate) fn boolean(&mut self, name: &str) -> Result<Option<bool>, AppError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(_) => Err(self.invalid(name, "must be true or false")),
        }
    }

    /// An object, whatever its members.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, AppError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(members)),
            Some(_) => Err(self.invalid(name, "must be an object")),
        }
    }

    /// An object with the members `known`, whose names are reported with the name of this one before them.
    pub(crate) fn section(&mut self, name: &str, known: &[&str]) -> Result<Option<Self>, AppError> {
        let Some(members) = self.object(name)? else {
            return Ok(None);
        };
        let within = format!("{}.", self.path(name));
        Self::of(members, within).only(known).map(Some)
    }

    /// An object of at most `most` members, whatever their names, each of which is an object with the members `known`.
    pub(crate) fn sections(
        &mut self,
        name: &str,
        most: usize,
        known: &[&str],
    ) -> Result<Option<Vec<(String, Self)>>, AppError> {
        let Some(members) = self.object(name)? else {
            return Ok(None);
        };
        if members.len() > most {
            return Err(self.invalid(name, format!("must have at most {most} members")));
        }
        let names: Vec<String> = members.keys().cloned().collect();
        let mut inner = Self::of(members, format!("{}.", self.path(name)));
        let mut sections = Vec::with_capacity(names.len());
        for name in names {
            if name.chars().count() > MAX_SLUG {
                let message = format!("must have names of at most {MAX_SLUG} characters");
                return Err(AppError::invalid(inner.within.trim_end_matches('.'), message));
            }
            let section = inner.section(&name, known)?;
            sections.extend(section.map(|section| (name, section)));
        }
        Ok(Some(sections))
    }

    /// What every member says that is true or false, for an object of at most `most`, whatever their names.
    pub(crate) fn switches(
        &mut self,
        name: &str,
        most: usize,
    ) -> Result<Option<Vec<(String, bool)>>, AppError> {
        let Some(members) = self.object(name)? else {
            return Ok(None);
        };
        if members.len() > most {
            return Err(self.invalid(name, format!("must have at most {most} members")));
        }
        let switch = |(pattern, value): (String, Value)| {
            let value = value.as_bool().filter(|_| pattern.chars().count() <= MAX_SLUG);
            value.map(|value| (pattern, value))
        };
        let switches: Option<Vec<_>> = members.into_iter().map(switch).collect();
        let message = format!("must have names of at most {MAX_SLUG} characters and true or false for each");
        switches.map(Some).ok_or_else(|| self.invalid(name, message))
    }

    /// An amount of dollars.
    pub(crate) fn usd(&mut self, name: &str) -> Result<Option<Micros>, AppError> {
        self.amount(name, Micros::parse_usd)
    }

    /// An amount as `parse` reads it.
    pub(crate) fn amount<E: std::fmt::Display>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<Micros, E>,
    ) -> Result<Option<Micros>, AppError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => parse(&text)
                .map(Some)
                .map_err(|error| self.invalid(name, error.to_string())),
            Some(_) => Err(self.invalid(name, "must be a decimal string")),
        }
    }

    /// An integer within `bounds`; `1.0` is none.
    pub(crate) fn integer(
        &mut self,
        name: &str,
        bounds: RangeInclusive<i64>,
    ) -> Result<Option<i64>, AppError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let fitting = value.as_i64().filter(|integer| bounds.contains(integer));
        fitting.map(Some).ok_or_else(|| {
            let message = format!("must be an integer of {} to {}", bounds.start(), bounds.end());
            self.invalid(name, message)
        })
    }

    /// An integer of zero or more.
    pub(crate) fn count(&mut self, name: &str) -> Result<Option<u64>, AppError> {
        let count = self.integer(name, 0..=i64::MAX)?;
        Ok(count.map(i64::unsigned_abs))
    }

    /// Slugs, or `provider/*`.
    pub(crate) fn slugs(&mut self, name: &str) -> Result<Option<Vec<String>>, AppError> {
        let Some(texts) = self.texts(name, MAX_SLUGS)? else {
            return Ok(None);
        };
        match texts.iter().position(|text| !is_pattern(text)) {
            None => Ok(Some(texts)),
            Some(at) => {
                let path = format!("{name}/{at}");
                Err(self.invalid(&path, "must be provider/endpoint or provider/*"))
            }
        }
    }

    /// At most `most` strings.
    pub(crate) fn texts(&mut self, name: &str, most: usize) -> Result<Option<Vec<String>>, AppError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let wrong = || self.invalid(name, format!("must be an array of at most {most} strings"));
        let Value::Array(items) = value else {
            return Err(wrong());
        };
        if items.len() > most {
            return Err(wrong());
        }
        let texts: Option<Vec<String>> = items
            .into_iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect();
        texts.map(Some).ok_or_else(wrong)
    }
}

/// How long a string must be, in words.
fn characters(length: &RangeInclusive<usize>) -> String {
    let (least, most) = (length.start(), length.end());
    if *least == 0 {
        format!("at most {most} characters")
    } else {
        format!("{least} to {most} characters")
    }
}

/// Whether `text` is `provider/*`, `provider/endpoint` or `provider/model`. A model's name may have more in it
/// than an endpoint's.
pub(crate) fn is_pattern(text: &str) -> bool {
    let Some((provider, name)) = text.split_once('/') else {
        return false;
    };
    let starts_well = |part: &str| {
        part.bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric())
    };
    let provider_ok = starts_well(provider)
        && provider
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let name_ok = starts_well(name)
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._:@/-".contains(&byte));
    text.len() <= MAX_SLUG && provider_ok && (name == "*" || name_ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_a_provider_and_one_thing_or_all_of_it() {
        for good in ["up/*", "up/chat-completions", "a-1/gpt-4.1", "o/org/model:free"] {
            assert!(is_pattern(good), "{good}");
        }
        for bad in [
            "", "up", "up/", "/x", "*/*", "up/a*", "Up/x", "up/ x", "up/**", "-up/x",
        ] {
            assert!(!is_pattern(bad), "{bad}");
        }
        assert!(!is_pattern(&format!("up/{}", "x".repeat(254))));
    }

    fn fields(body: &str) -> Fields {
        let all = ["text", "usd", "count", "slugs", "switch", "object"];
        Fields::parse(body.as_bytes(), &all).unwrap()
    }

    /// What a refusal says of each member.
    fn paths(error: &AppError) -> Vec<&str> {
        let details = error.members["details"].as_array().unwrap();
        let path = |detail: &'_ Value| detail["message"].is_string() && detail["path"].is_string();
        assert!(details.iter().all(path), "{details:?}");
        details.iter().filter_map(|one| one["path"].as_str()).collect()
    }

    #[test]
    fn a_member_of_another_kind_is_refused() {
        let refused = |body: &str, outcome: Result<bool, AppError>, path: &str| {
            let error = outcome.expect_err(body);
            assert_eq!(error.code, ErrorCode::ValidationError, "{body}");
            assert_eq!(paths(&error), [path], "{body}");
        };
        for value in ["1", "\"a\\u0000\"", "\"abcd\"", "\"\"", "null"] {
            let body = format!(r#"{{"text":{value}}}"#);
            refused(
                &body,
                fields(&body).words("text", 1..=3).map(|x| x.is_some()),
                "text",
            );
            refused(
                &body,
                fields(&body).prose("text", 1..=3).map(|x| x.is_some()),
                "text",
            );
        }
        let lines = r#"{"text":"a\nb"}"#;
        refused(
            lines,
            fields(lines).words("text", 1..=3).map(|x| x.is_some()),
            "text",
        );
        assert_eq!(
            fields(lines).prose("text", 1..=3).unwrap().as_deref(),
            Some("a\nb")
        );
        for value in ["1", "\"-1\"", "\"1e3\"", "\"0.0000001\"", "null"] {
            let body = format!(r#"{{"usd":{value}}}"#);
            refused(&body, fields(&body).usd("usd").map(|x| x.is_some()), "usd");
        }
        for value in ["-1", "1.5", "1.0", "\"1\"", "9223372036854775808", "null"] {
            let body = format!(r#"{{"count":{value}}}"#);
            refused(&body, fields(&body).count("count").map(|x| x.is_some()), "count");
            refused(
                &body,
                fields(&body).integer("count", 0..=9).map(|x| x.is_some()),
                "count",
            );
        }
        let ten = r#"{"count":10}"#;
        refused(
            ten,
            fields(ten).integer("count", 0..=9).map(|x| x.is_some()),
            "count",
        );
        assert_eq!(fields(ten).integer("count", -1..=10).unwrap(), Some(10));
        assert_eq!(fields(ten).count("count").unwrap(), Some(10));
        for (value, path) in [
            ("\"a/b\"", "slugs"),
            ("[1]", "slugs"),
            ("[\"u/x\",\"a\"]", "slugs/1"),
        ] {
            let body = format!(r#"{{"slugs":{value}}}"#);
            refused(&body, fields(&body).slugs("slugs").map(|x| x.is_some()), path);
        }
        for value in ["1", "\"true\"", "null", "[]"] {
            let body = format!(r#"{{"switch":{value},"object":{value}}}"#);
            refused(
                &body,
                fields(&body).boolean("switch").map(|x| x.is_some()),
                "switch",
            );
            refused(
                &body,
                fields(&body).object("object").map(|x| x.is_some()),
                "object",
            );
        }
    }

    #[test]
    fn every_unknown_member_is_named_up_to_a_bound() {
        let refused = |body: &str| Fields::parse(body.as_bytes(), &["usd"]).unwrap_err();
        let error = refused(r#"{"other":1,"usd":"1","more":null}"#);
        assert_eq!(error.code, ErrorCode::UnknownField);
        assert_eq!(paths(&error), ["other", "more"]);
        let many: Map<String, Value> = (0..50)
            .map(|at| (format!("{at}{}", "x".repeat(500)), Value::Null))
            .collect();
        let error = refused(&Value::Object(many).to_string());
        let paths = paths(&error);
        assert_eq!(paths.len(), MAX_NAMED);
        assert!(paths.iter().all(|path| path.len() == MAX_SHOWN));
    }

    #[test]
    fn only_an_object_with_each_member_once_is_read() {
        for body in ["[]", "null", "1", "{", r#"{"usd":"1","usd":"1"}"#] {
            let error = Fields::parse(body.as_bytes(), &["usd"]).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidJson, "{body}");
        }
        assert!(fields("").usd("usd").unwrap().is_none());
    }

    #[test]
    fn absence_null_and_a_value_are_told_apart() {
        let usd = |body: &str| fields(body).nullable("usd", Fields::usd);
        let one = Micros::parse_usd("1").unwrap();
        let two = Micros::parse_usd("2").unwrap();
        assert_eq!(usd("{}").unwrap(), Nullable::Absent);
        assert_eq!(usd(r#"{"usd":null}"#).unwrap(), Nullable::Null);
        assert_eq!(usd(r#"{"usd":"1"}"#).unwrap(), Nullable::Value(one));
        assert!(usd(r#"{"usd":1}"#).is_err());
        assert_eq!(Nullable::Absent.or(Some(two)), Some(two));
        assert_eq!(Nullable::Null.or(Some(two)), None);
        assert_eq!(Nullable::Value(one).or(Some(two)), Some(one));
        let nulls = fields(r#"{"usd":null}"#);
        assert!(nulls.has("usd") && !nulls.has("text"));
        assert_eq!(nulls.without_nulls().usd("usd").unwrap(), None);
        let missing = fields("{}").required("switch", Fields::boolean).unwrap_err();
        assert_eq!(missing.code, ErrorCode::ValidationError);
        assert_eq!(paths(&missing), ["switch"]);
        let nested = |body: &str| fields(body).section("object", &["usd"]).unwrap_err();
        let error = nested(r#"{"object":{"other":1}}"#);
        assert_eq!(
            (error.code, paths(&error)),
            (ErrorCode::UnknownField, vec!["object.other"])
        );
        let mut inner = fields(r#"{"object":{"usd":1}}"#)
            .section("object", &["usd"])
            .unwrap()
            .unwrap();
        assert_eq!(paths(&inner.usd("usd").unwrap_err()), ["object.usd"]);
        let mut many = fields(r#"{"object":{"a/b":{"usd":"1"},"c":{"x":1}}}"#);
        let error = many.sections("object", 2, &["usd"]).unwrap_err();
        assert_eq!(paths(&error), ["object.c.x"]);
        let mut many = fields(r#"{"object":{"a":true,"b":1}}"#);
        assert_eq!(paths(&many.switches("object", 2).unwrap_err()), ["object"]);
        let there = fields(r#"{"switch":false}"#).required("switch", Fields::boolean);
        assert!(!there.unwrap());
    }
}
