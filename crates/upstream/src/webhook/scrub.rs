//! Foreign text made fit for keeping: short, printable, without anything that looks like a credential.
//!
//! The rule: scrubbing comes before cutting, so that no half of a secret survives; where reading stopped in
//! the middle, what might be the beginning of a secret goes, too. Redacting too much is no fault.

use std::sync::LazyLock;

use regex::Regex;

/// Longest text that is kept, its marker included.
pub const MAX_BYTES: usize = 4096;
/// How a text ends when something was cut.
pub const TRUNCATED: &str = " … [truncated]";
const REDACTED: &str = "[redacted]";
/// How much of an unfinished word or number is dropped where reading stopped.
const UNFINISHED_BYTES: usize = 64;
/// Each pass can join what stood apart; more passes than this are somebody's game.
const MAX_PASSES: usize = 8;

/// Credentials by their beginning, whatever their end; none is shorter than its replacement.
const CREDENTIALS: &str = concat!(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
    r"(?s:.)*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\z)",
    r"|whsec_[A-Za-z0-9+/=_-]{4,}",
    r"|[A-Za-z0-9_]*(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9_-]{4,}",
    r"|(?-u:\b)sk-[A-Za-z0-9_-]{8,}",
    r"|(?i-u:\bbearer)(?:[ \t]|%20|\+)+[A-Za-z0-9._~+/=-]{4,}",
    r"|eyJ[A-Za-z0-9_=-]{8,}(?:\.[A-Za-z0-9_=-]*)*",
);

static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(CREDENTIALS).ok());

/// The text that is kept of `raw`. `whole` says that nothing of it is missing.
pub fn stored(raw: &[u8], whole: bool) -> String {
    let mut text = redact(&printable(raw));
    let mut cut = !whole;
    if cut {
        drop_unfinished(&mut text);
    }
    for _ in 0..MAX_PASSES {
        if cut || text.len() > MAX_BYTES {
            cut = false;
            shorten(&mut text);
        }
        // Cutting a long number can leave a shorter one that is a card's.
        let again = redact(&text);
        if again == text {
            return text;
        }
        text = again;
    }
    REDACTED.to_owned()
}

/// Without control characters; line ends are one `\n`.
fn printable(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw)
        .replace("\r\n", "\n")
        .chars()
        .map(|letter| match letter {
            '\n' | '\t' => letter,
            _ if letter.is_control() => char::REPLACEMENT_CHARACTER,
            _ => letter,
        })
        .collect()
}

fn redact(text: &str) -> String {
    // INVARIANT: without its pattern nothing is passed on.
    let Some(pattern) = PATTERN.as_ref() else {
        return REDACTED.to_owned();
    };
    without_cards(&pattern.replace_all(text, REDACTED))
}

/// Drops the word, or the number with blanks, that a text was cut in.
fn drop_unfinished(text: &mut String) {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.+/=".contains(&byte);
    let number = |byte: u8| byte.is_ascii_digit() || b" -".contains(&byte);
    drop_end(text, word);
    drop_end(text, number);
}

fn drop_end(text: &mut String, part: impl Fn(u8) -> bool) {
    let end = text.bytes().rev();
    let dropped = end.take(UNFINISHED_BYTES).take_while(|byte| part(*byte)).count();
    // Only ASCII was counted: this is a boundary.
    text.truncate(text.len().saturating_sub(dropped));
}

/// Cuts to what leaves room for the marker, and marks.
fn shorten(text: &mut String) {
    text.truncate(text.floor_char_boundary(MAX_BYTES.saturating_sub(TRUNCATED.len())));
    text.push_str(TRUNCATED);
}

/// Replaces card numbers: 13 to 19 digits that pass Luhn's check, in groups apart by one blank or dash.
fn without_cards(text: &str) -> String {
    let groups = digit_groups(text);
    let mut clean = String::with_capacity(text.len());
    let mut copied = 0;
    let mut first = 0;
    while let Some(&(start, _)) = groups.get(first) {
        let Some(last) = card_from(text, &groups, first) else {
            first += 1;
            continue;
        };
        let end = groups.get(last).map_or(start, |&(_, end)| end);
        clean.push_str(text.get(copied..start).unwrap_or_default());
        clean.push_str(REDACTED);
        copied = end;
        first = last + 1;
    }
    clean.push_str(text.get(copied..).unwrap_or_default());
    clean
}

/// Where runs of digits begin and end.
fn digit_groups(text: &str) -> Vec<(usize, usize)> {
    let mut groups: Vec<(usize, usize)> = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        if !byte.is_ascii_digit() {
            continue;
        }
        match groups.last_mut() {
            Some((_, end)) if *end == at => *end = at + 1,
            Some(_) | None => groups.push((at, at + 1)),
        }
    }
    groups
}

/// The last group of the longest card number that begins with group `first`.
fn card_from(text: &str, groups: &[(usize, usize)], first: usize) -> Option<usize> {
    let mut digits: Vec<u8> = Vec::new();
    let mut found = None;
    let mut before = None;
    for (index, &(start, end)) in groups.iter().enumerate().skip(first) {
        let apart = before.map(|before| text.get(before..start).unwrap_or_default());
        if apart.is_some_and(|apart| apart != " " && apart != "-") || digits.len() + (end - start) > 19 {
            break;
        }
        digits.extend(text.bytes().skip(start).take(end - start).map(|byte| byte - b'0'));
        // Groups that touch letters are parts of an id.
        let card =
            index == first || !touches_letters(text, groups.get(first).map_or(0, |group| group.0), end);
        if card && digits.len() >= 13 && passes_luhn(&digits) {
            found = Some(index);
        }
        before = Some(end);
    }
    found
}

/// Whether a letter stands directly before or behind; that of an escaped line end does not count.
fn touches_letters(text: &str, start: usize, end: usize) -> bool {
    let mut before = text.bytes().take(start).rev();
    let behind = text.as_bytes().get(end).copied();
    let letter = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphabetic());
    (letter(before.next()) && before.next() != Some(b'\\')) || letter(behind)
}

fn passes_luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, &digit)| match (place % 2, digit) {
            (0, _) => u32::from(digit),
            (_, 0..=4) => u32::from(digit) * 2,
            (_, _) => u32::from(digit) * 2 - 9,
        })
        .sum();
    sum.is_multiple_of(10)
}
