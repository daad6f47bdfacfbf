//! Texts of a document as people read them here: without markup, in one line, within a length.

use serde_json::Value;

/// Longest title.
pub(super) const MAX_TITLE: usize = 120;
/// Longest summary.
pub(super) const MAX_SUMMARY: usize = 300;
/// Longest description.
pub(super) const MAX_DESCRIPTION: usize = 6000;
/// Longest name of an argument or of a tool.
pub(super) const MAX_NAME: usize = 64;

/// A value's text, cut.
pub(super) fn text_of(value: &Value, max: usize) -> String {
    match value {
        Value::String(text) => cut(text, max),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
    }
}

/// Without control characters but line ends, and at most `max` characters.
pub(super) fn cut(text: &str, max: usize) -> String {
    let mut kept = String::new();
    let shown = beginning(text, max.saturating_mul(4).saturating_add(64))
        .trim()
        .chars()
        .filter(|letter| !letter.is_control() || matches!(letter, '\n' | '\t'));
    for (count, letter) in shown.enumerate() {
        if count == max {
            kept.push('…');
            break;
        }
        kept.push(letter);
    }
    kept
}

/// The first bytes of a text, so that nothing is read again and again that is far too long.
fn beginning(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

/// In one line, without tags of HTML.
pub(super) fn plain(text: &str) -> String {
    let mut rest = beginning(text, 4096);
    let mut kept = String::with_capacity(rest.len());
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        kept.push_str(before);
        let is_tag = tag
            .get(1..)
            .and_then(|inside| inside.chars().next())
            .is_some_and(|first| first.is_ascii_alphabetic() || first == '/');
        match tag.find('>') {
            Some(end) if is_tag && end < 400 => {
                kept.push(' ');
                rest = tag.get(end.saturating_add(1)..).unwrap_or_default();
            }
            Some(_) | None => {
                kept.push('<');
                rest = tag.get(1..).unwrap_or_default();
            }
        }
    }
    kept.push_str(rest);
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first sentence of a text.
pub(super) fn first_sentence(text: &str) -> String {
    let line = plain(beginning(text, 4096).split("\n\n").next().unwrap_or_default());
    let end = line.find(". ").map_or(line.len(), |at| at.saturating_add(1));
    cut(line.get(..end).unwrap_or(&line), MAX_SUMMARY)
}
