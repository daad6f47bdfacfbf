//! Members of a request's body: each is taken once by its name and kind, and none may be left over.

use serde_json::{Map, Value};
use turnpike_core::errors::ErrorCode;
use turnpike_core::money::Micros;

use crate::error::AppError;
use crate::json::parse_object;

/// Most slugs in one list.
const MAX_SLUGS: usize = 200;
/// Longest slug.
const MAX_SLUG: usize = 256;

/// What is left of a body.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// The body `raw`, which may have the members `known`; no body counts as one without members.
    ///
    /// # Errors
    /// `INVALID_JSON`, `UNKNOWN_FIELD`.
    pub(super) fn parse(raw: &[u8], known: &[&str]) -> Result<Self, AppError> {
        let members = if raw.is_empty() {
            Map::new()
        } else {
            parse_object(raw)?
        };
        match members.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(Self(members)),
            Some(unknown) => {
                let shown: String = unknown.chars().take(100).collect();
                let message = format!("unknown field `{shown}`, expected one of {}", known.join(", "));
                Err(AppError::new(ErrorCode::UnknownField, message))
            }
        }
    }

    /// The same, where a member that is null counts as absent.
    pub(super) fn without_nulls(mut self) -> Self {
        self.0.retain(|_name, value| !value.is_null());
        self
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// A string.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, AppError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(AppError::invalid(name, "must be a string")),
        }
    }

    /// A string of at most `max` characters, none of them a control character.
    pub(super) fn words(&mut self, name: &str, max: usize) -> Result<Option<String>, AppError> {
        let text = self.text(name)?;
        let fits = |text: &String| text.chars().count() <= max && !text.chars().any(char::is_control);
        if text.as_ref().is_none_or(fits) {
            return Ok(text);
        }
        let message = format!("must be at most {max} characters without control characters");
        Err(AppError::invalid(name, message))
    }

    /// An amount of dollars.
    pub(super) fn usd(&mut self, name: &str) -> Result<Option<Micros>, AppError> {
        self.amount(name, Micros::parse_usd)
    }

    /// An amount as `parse` reads it.
    pub(super) fn amount<E: std::fmt::Display>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<Micros, E>,
    ) -> Result<Option<Micros>, AppError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => parse(&text)
                .map(Some)
                .map_err(|error| AppError::invalid(name, error.to_string())),
            Some(_) => Err(AppError::invalid(name, "must be a decimal string")),
        }
    }

    /// An integer of zero or more.
    pub(super) fn count(&mut self, name: &str) -> Result<Option<u64>, AppError> {
        let wrong = || {
            AppError::invalid(
                name,
                "must be an integer of 0 or more that fits 64 bits with a sign",
            )
        };
        let count = |value: Value| value.as_i64().and_then(|count| u64::try_from(count).ok());
        self.take(name)
            .map(|value| count(value).ok_or_else(wrong))
            .transpose()
    }

    /// Slugs, or `provider/*`.
    pub(super) fn slugs(&mut self, name: &str) -> Result<Option<Vec<String>>, AppError> {
        let Some(texts) = self.texts(name, MAX_SLUGS)? else {
            return Ok(None);
        };
        match texts.iter().position(|text| !is_pattern(text)) {
            None => Ok(Some(texts)),
            Some(at) => {
                let path = format!("{name}/{at}");
                Err(AppError::invalid(
                    &path,
                    "must be provider/endpoint or provider/*",
                ))
            }
        }
    }

    /// At most `most` strings.
    pub(super) fn texts(&mut self, name: &str, most: usize) -> Result<Option<Vec<String>>, AppError> {
        let wrong = || AppError::invalid(name, format!("must be an array of at most {most} strings"));
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
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

/// Whether `text` is `provider/*`, `provider/endpoint` or `provider/model`. A model's name may have more in it
/// than an endpoint's.
fn is_pattern(text: &str) -> bool {
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

    #[test]
    fn a_member_of_another_kind_is_refused() {
        let all = ["text", "usd", "count", "slugs"];
        let fields = |body: &str| Fields::parse(body.as_bytes(), &all);
        for body in [
            r#"{"text":1}"#,
            r#"{"text":"a\u0000"}"#,
            r#"{"text":"abcd"}"#,
            r#"{"text":null}"#,
        ] {
            assert!(fields(body).unwrap().words("text", 3).is_err(), "{body}");
        }
        for body in [
            r#"{"usd":1}"#,
            r#"{"usd":"-1"}"#,
            r#"{"usd":"1e3"}"#,
            r#"{"usd":"0.0000001"}"#,
        ] {
            assert!(fields(body).unwrap().usd("usd").is_err(), "{body}");
        }
        for body in [
            r#"{"count":-1}"#,
            r#"{"count":1.5}"#,
            r#"{"count":"1"}"#,
            r#"{"count":9223372036854775808}"#,
        ] {
            assert!(fields(body).unwrap().count("count").is_err(), "{body}");
        }
        for body in [r#"{"slugs":"a/b"}"#, r#"{"slugs":[1]}"#, r#"{"slugs":["a"]}"#] {
            assert!(fields(body).unwrap().slugs("slugs").is_err(), "{body}");
        }
        let unknown = fields(r#"{"other":1}"#).err().map(|error| error.code);
        assert_eq!(unknown, Some(ErrorCode::UnknownField));
        assert!(fields("").unwrap().usd("usd").unwrap().is_none());
        let nulls = fields(r#"{"usd":null}"#).unwrap().without_nulls().usd("usd");
        assert_eq!(nulls.unwrap(), None);
    }
}
