//! What people sign in with: an e-mail address or a name, the same with and without capitals.

use crate::error::AppError;

/// Longest login in characters.
const MAX_LOGIN: usize = 254;
/// What a login may have beside letters and digits.
const MARKS: &str = "._@+-'";

/// A login as it was typed, and without case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) shown: String,
    pub(super) key: String,
}

impl Login {
    /// Reads a login; spaces around it do not count.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`.
    pub(super) fn parse(text: &str) -> Result<Self, AppError> {
        let shown = text.trim();
        let known = |c: char| c.is_alphanumeric() || MARKS.contains(c);
        if !(1..=MAX_LOGIN).contains(&shown.chars().count()) || !shown.chars().all(known) {
            let message =
                "must be an e-mail address or a name of at most 254 letters, digits and . _ @ + - '";
            return Err(AppError::invalid("login", message));
        }
        Ok(Self {
            shown: shown.to_owned(),
            key: shown.to_lowercase(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_has_no_case_and_no_hidden_characters() {
        let one = Login::parse(" Ada.Lovelace@Example.COM ").unwrap();
        assert_eq!(one.shown, "Ada.Lovelace@Example.COM");
        assert_eq!(one.key, Login::parse("ada.lovelace@example.com").unwrap().key);
        assert_eq!(Login::parse("ZOË").unwrap().key, "zoë");
        for bad in [
            "",
            " ",
            "a b",
            "a\u{202e}b",
            "a\0",
            "a:b",
            "a/b",
            &"x".repeat(255),
        ] {
            assert!(Login::parse(bad).is_err(), "{bad:?}");
        }
        assert!(Login::parse(&"x".repeat(254)).is_ok());
    }
}
