//! What the index knows of the language of tasks and interfaces: words that say nothing or little, words that mean the same,
//! and phrases that mean one word.
//!
//! The lists beside this file hold words as they are written, a group or a phrase a line; stems are made of them when an
//! index is built. They name kinds of work that many interfaces offer, never a provider or a tool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Words that say nothing about what is to be done.
static STOP_WORDS: LazyLock<BTreeSet<&'static str>> =
    LazyLock::new(|| include_str!("stop-words.txt").split_whitespace().collect());

/// Words that say little of it: verbs that go with everything, days and hours.
static LIGHT_WORDS: LazyLock<BTreeSet<&'static str>> =
    LazyLock::new(|| include_str!("light-words.txt").split_whitespace().collect());

/// Words, and those that are searched for in their place.
type Phrase = (Vec<&'static str>, Vec<&'static str>);

/// Phrases by their first word.
static PHRASES: LazyLock<BTreeMap<&'static str, Vec<Phrase>>> = LazyLock::new(|| {
    let mut phrases: BTreeMap<_, Vec<Phrase>> = BTreeMap::new();
    for (phrase, meant) in include_str!("phrases.txt")
        .lines()
        .filter_map(|line| line.split_once(" = "))
    {
        let phrase: Vec<&str> = phrase.split_whitespace().collect();
        if let Some(first) = phrase.first() {
            let meant = meant.split_whitespace().collect();
            phrases.entry(*first).or_default().push((phrase, meant));
        }
    }
    phrases
});

/// Whether a word in lower case says nothing.
pub(super) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.contains(word)
}

/// Whether a word in lower case says little.
pub(super) fn is_light(word: &str) -> bool {
    LIGHT_WORDS.contains(word)
}

/// The phrase that `words` begin with: how many words it has, and those that are searched for in its place.
pub(super) fn phrase(words: &[String]) -> Option<(usize, &'static [&'static str])> {
    let phrases = PHRASES.get(words.first()?.as_str())?;
    let found = phrases.iter().find(|(phrase, _)| {
        words.len() >= phrase.len() && words.iter().zip(phrase).all(|(one, other)| one == other)
    });
    found.map(|(phrase, meant)| (phrase.len(), meant.as_slice()))
}

/// Groups of words that mean the same.
pub(super) fn same() -> impl Iterator<Item = Vec<&'static str>> {
    groups(include_str!("same.txt"))
}

/// Groups of words of which each may stand for the others.
pub(super) fn synonyms() -> impl Iterator<Item = Vec<&'static str>> {
    groups(include_str!("synonyms.txt"))
}

fn groups(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines().map(|line| line.split_whitespace().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_of_a_group_or_of_a_phrases_meaning_says_nothing() {
        for word in synonyms().chain(same()).flatten() {
            assert!(!is_stop_word(word), "{word}");
        }
        for (phrase, meant) in PHRASES.values().flatten() {
            assert!(phrase.len() > 1 && !meant.is_empty(), "{phrase:?}");
            assert!(meant.iter().all(|word| !is_stop_word(word)), "{phrase:?}");
        }
        assert!(LIGHT_WORDS.is_disjoint(&STOP_WORDS));
    }

    #[test]
    fn no_word_stands_twice_in_a_group() {
        for group in synonyms().chain(same()) {
            let words: BTreeSet<&str> = group.iter().copied().collect();
            assert!(words.len() == group.len() && group.len() > 1, "{group:?}");
        }
    }

    #[test]
    fn a_phrase_is_found_at_the_beginning() {
        let words: Vec<String> = ["look", "up", "the", "name"].map(str::to_owned).into();
        assert_eq!(phrase(&words), Some((2, &["lookup"][..])));
        assert_eq!(phrase(&words[1..]), None);
        assert_eq!(phrase(&words[..1]), None);
    }
}
