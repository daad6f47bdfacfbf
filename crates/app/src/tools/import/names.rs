//! Names: slugs of operations and tags, names of arguments, and patterns over slugs.

use std::collections::BTreeSet;

use super::words::MAX_NAME;

/// A text as a part of a slug: `getPetById` and `pets/get by id` become words with dashes; empty when nothing
/// is left.
pub(super) fn slug(text: &str) -> String {
    let mut slug = String::new();
    let mut last = ' ';
    let letters: Vec<char> = text.chars().take(400).collect();
    for (index, &letter) in letters.iter().enumerate() {
        if letter.is_ascii_alphanumeric() {
            let next_is_lower = letters
                .get(index.saturating_add(1))
                .is_some_and(char::is_ascii_lowercase);
            let begins_word = letter.is_ascii_uppercase()
                && (last.is_ascii_lowercase()
                    || last.is_ascii_digit()
                    || (last.is_ascii_uppercase() && next_is_lower));
            if begins_word {
                slug.push('-');
            }
            slug.push(letter.to_ascii_lowercase());
        } else if letter != '\'' && !slug.ends_with('-') && !slug.is_empty() {
            slug.push('-');
        }
        last = letter;
    }
    let cut = slug.get(..MAX_NAME).unwrap_or(&slug);
    cut.trim_matches('-').to_owned()
}

/// The same with a number behind it while it is taken; takes it.
pub(super) fn unique(wanted: &str, separator: char, taken: &mut BTreeSet<String>) -> String {
    let mut name = wanted.to_owned();
    let mut count = 1_u32;
    while !taken.insert(name.clone()) {
        count = count.saturating_add(1);
        let number = count.to_string();
        let room = MAX_NAME.saturating_sub(number.len()).saturating_sub(1);
        let kept: String = wanted.chars().take(room).collect();
        name = format!("{kept}{separator}{number}");
    }
    name
}

/// A parameter's name as an argument's: letters, digits, dots, dashes and underscores.
pub(super) fn argument(name: &str) -> String {
    let safe = |letter: char| {
        if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.') {
            letter
        } else {
            '_'
        }
    };
    let text: String = name.chars().take(MAX_NAME).map(safe).collect();
    let text = if text == name {
        text
    } else {
        text.trim_matches('_').to_owned()
    };
    if text.is_empty() { "arg".to_owned() } else { text }
}

/// Whether a pattern with `*` for anything matches `text`.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at.saturating_add(part.len())..).unwrap_or_default();
    }
    rest.ends_with(last)
}
