//! What is no word and still says something: addresses, numbers and times in a task, as the words for their kind.

/// Endings by which a name with dots is taken for a domain.
const ENDINGS: &[&str] = &[
    "ai", "app", "at", "ch", "co", "com", "de", "dev", "edu", "es", "eu", "fr", "gov", "info", "io", "it",
    "net", "nl", "org", "uk",
];

/// The words for what a part of a task is, when it is no word; empty when it says nothing.
pub(super) fn kind_of(part: &str) -> Option<&'static [&'static str]> {
    let part = part.trim_matches(|letter: char| !letter.is_alphanumeric() && !"$€£¥".contains(letter));
    if part.contains("://") || part.starts_with("www.") {
        return Some(&["url", "website"]);
    }
    if let Some((name, host)) = part.split_once('@') {
        return (!name.is_empty() && host.contains('.')).then_some(&["email", "address"]);
    }
    if part.parse::<std::net::IpAddr>().is_ok() {
        return Some(&["ip", "address"]);
    }
    if part.starts_with(['$', '€', '£', '¥']) {
        return Some(&["amount", "currency"]);
    }
    if is_domain(part) {
        return Some(&["domain", "website"]);
    }
    if !part.starts_with(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    let number = part.trim_end_matches(|letter: char| letter.is_ascii_digit());
    match number.strip_suffix('.') {
        Some(whole) if part.len().saturating_sub(number.len()) >= 3 && is_digits(whole) => {
            Some(&["coordinates"])
        }
        _ if is_time(part) => Some(&["time"]),
        _ if part
            .chars()
            .all(|letter| letter.is_ascii_digit() || ".,-+:/".contains(letter)) =>
        {
            Some(&[])
        }
        _ => None,
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_domain(part: &str) -> bool {
    let part = part.to_ascii_lowercase();
    part.rsplit_once('.')
        .is_some_and(|(name, ending)| !name.is_empty() && !is_digits(name) && ENDINGS.contains(&ending))
}

/// `9am`, `11:30`, `7pm`.
fn is_time(part: &str) -> bool {
    let part = part.to_ascii_lowercase();
    let clock = |text: &str| {
        text.split_once(':')
            .is_some_and(|(hours, minutes)| is_digits(hours) && is_digits(minutes) && text.len() <= 5)
    };
    let half = part.strip_suffix("am").or_else(|| part.strip_suffix("pm"));
    clock(&part) || half.is_some_and(|hour| is_digits(hour) || clock(hour))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_word_is_named_by_its_kind() {
        for (part, kind) in [
            ("https://example.org/x?y", Some("url")),
            ("(www.example.org)", Some("url")),
            ("anna@example.org,", Some("email")),
            ("81.2.69.142?", Some("ip")),
            ("2001:db8::1", Some("ip")),
            ("example.com.", Some("domain")),
            ("$250", Some("amount")),
            ("48.2082,", Some("coordinates")),
            ("9am", Some("time")),
            ("11:30", Some("time")),
            ("11:30pm", Some("time")),
            ("20", Some("")),
            ("2026-11-01", Some("")),
            ("3.50", Some("")),
            ("word", None),
            ("e.g.", None),
            ("send_email", None),
            ("acme/send", None),
            ("2fa", None),
            ("@", None),
            ("", None),
            ("🦀", None),
        ] {
            let found = kind_of(part).map(|words| words.first().copied().unwrap_or_default());
            assert_eq!(found, kind, "{part}");
        }
    }
}
