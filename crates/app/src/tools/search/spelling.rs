//! Words that were meant: known ones that are one slip of the finger away, and names that are nearest to one.

use std::collections::HashMap;

/// Shortest word that is taken for a misspelt one; shorter words are too near to each other.
const MIN_WORD: usize = 5;
/// Most spellings that are remembered: words that come later are not corrected.
const MAX_RESTS: usize = 1_000_000;
/// Longest word that is corrected.
const MAX_WORD: usize = 24;
/// Most letters of a name that are compared.
const MAX_NAME: usize = 64;

/// Known words by what is left of them when a letter is missing: two words that are one edit apart have such a rest in
/// common.
#[derive(Debug, Default)]
pub(super) struct Spelling {
    by_rest: HashMap<String, Vec<u32>>,
}

/// A word with one letter less, in every way, and as it is.
fn rests(word: &str) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    let mut rests: Vec<String> = (0..letters.len())
        .map(|missing| {
            let kept = letters.iter().enumerate().filter(|(at, _)| *at != missing);
            kept.map(|(_, letter)| letter).collect()
        })
        .collect();
    rests.push(word.to_owned());
    rests.dedup();
    rests
}

fn is_correctable(word: &str) -> bool {
    (MIN_WORD..=MAX_WORD).contains(&word.chars().count()) && word.chars().all(char::is_alphabetic)
}

impl Spelling {
    /// Remembers a word by its number.
    pub(super) fn learn(&mut self, word: &str, number: u32) {
        if self.by_rest.len() < MAX_RESTS && is_correctable(word) {
            for rest in rests(word) {
                self.by_rest.entry(rest).or_default().push(number);
            }
        }
    }

    /// The numbers of known words one edit away from an unknown one, ascending; `known` gives a number's word.
    pub(super) fn near<'a>(&self, word: &str, known: impl Fn(u32) -> Option<&'a str>) -> Vec<u32> {
        if !is_correctable(word) {
            return Vec::new();
        }
        let mut near: Vec<u32> = rests(word)
            .iter()
            .filter_map(|rest| self.by_rest.get(rest))
            .flatten()
            .copied()
            .filter(|number| known(*number).is_some_and(|known| distance(known, word) == 1))
            .collect();
        near.sort_unstable();
        near.dedup();
        near
    }
}

/// How many letters must be added, taken away, changed or exchanged with their neighbour to make one of the other.
pub(super) fn distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().take(MAX_NAME).collect();
    let other: Vec<char> = other.chars().take(MAX_NAME).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut next = vec![row.saturating_add(1)];
        for (column, opposite) in other.iter().enumerate() {
            let changed = last[column].saturating_add(usize::from(letter != opposite));
            let added = next[column].saturating_add(1);
            let taken = last[column.saturating_add(1)].saturating_add(1);
            let mut least = changed.min(added).min(taken);
            if let (Some(above), Some(left)) = (row.checked_sub(1), column.checked_sub(1))
                && one[above] == *opposite
                && other[left] == *letter
            {
                least = least.min(before[left].saturating_add(1));
            }
            next.push(least);
        }
        before = std::mem::replace(&mut last, next);
    }
    last.last().copied().unwrap_or_default()
}

/// The names nearest to a wrong one, at most `most`: those that share a beginning or contain it count as nearer.
pub(crate) fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>, most: usize) -> Vec<String> {
    let wrong = wrong.to_lowercase();
    let mut near: Vec<(usize, &str)> = names
        .map(|name| {
            let related = !wrong.is_empty() && (name.contains(&wrong) || wrong.contains(name));
            let apart = distance(&wrong, name);
            (if related { apart.min(2) } else { apart }, name)
        })
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter()
        .take(most)
        .map(|(_, name)| name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn edits_are_counted() {
        for (one, other, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("email", "emial", 1),
            ("weather", "wether", 1),
            ("invoice", "invoices", 1),
            ("invoice", "imvoice", 1),
            ("kitten", "sitting", 3),
            ("ähnlich", "ahnlich", 1),
        ] {
            assert_eq!(distance(one, other), edits, "{one} {other}");
            assert_eq!(distance(other, one), edits, "{other} {one}");
        }
    }

    #[test]
    fn the_nearest_names_come_first() {
        let names = ["weather", "webhooks", "payments", "mail", "email"];
        let near = |wrong: &str| nearest(wrong, names.into_iter(), 2);
        assert_eq!(near("wether")[0], "weather");
        assert_eq!(near("Mails"), ["mail", "email"]);
        assert_eq!(near("payment").first().map(String::as_str), Some("payments"));
        assert_eq!(nearest("x", std::iter::empty(), 5), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn a_word_with_a_slip_is_found(word in "[a-z]{5,12}", at in 0_usize..12, letter in "[a-z]") {
            let mut spelling = Spelling::default();
            spelling.learn(&word, 7);
            let letters: Vec<char> = word.chars().collect();
            let at = at % letters.len();
            let changed: String = letters
                .iter()
                .enumerate()
                .map(|(index, old)| if index == at { letter.chars().next().unwrap() } else { *old })
                .collect();
            let longer = format!("{}{letter}{}", &word[..at], &word[at..]);
            for slip in [changed, longer] {
                if slip != word {
                    prop_assert_eq!(spelling.near(&slip, |_| Some(&*word)), vec![7]);
                }
            }
        }
    }
}
