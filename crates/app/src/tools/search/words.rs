//! The words of a text: split, folded to plain lower case, stemmed.
//!
//! Whatever the script, a word is a run of letters and digits. Names as programs write them (`getUserById`, `send_email`)
//! are taken apart, and the whole is remembered beside its parts.

use snowball_stemmers_rs::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use super::lexicon::is_stop_word;

/// Longest word, in characters; the rest of a longer one is not looked at.
const MAX_WORD: usize = 40;

/// A run of letters and digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The whole.
    pub(super) whole: String,
    /// Its parts by their capitals, when there are several.
    pub(super) parts: Vec<String>,
}

/// The runs of a text, up to a bound.
pub(super) fn runs(text: &str, most: usize) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut current = Builder::default();
    for letter in text.nfkd().filter(|letter| !is_combining_mark(*letter)) {
        if letter.is_alphanumeric() {
            current.push(letter);
        } else if let Some(run) = current.take() {
            runs.push(run);
            if runs.len() >= most {
                return runs;
            }
        }
    }
    runs.extend(current.take());
    runs
}

/// A run in the making.
#[derive(Default)]
struct Builder {
    parts: Vec<String>,
    part: String,
    length: usize,
    /// Whether the last letter, and the one before it, was a capital.
    capitals: (bool, bool),
}

impl Builder {
    fn push(&mut self, letter: char) {
        if self.length >= MAX_WORD {
            return;
        }
        self.length = self.length.saturating_add(1);
        let capital = letter.is_uppercase();
        let (last, before) = self.capitals;
        if capital && !last && !self.part.is_empty() {
            self.parts.push(std::mem::take(&mut self.part));
        } else if letter.is_lowercase() && last && before {
            // `PDFFile`: the last capital begins the next word.
            let begun = self.part.pop();
            self.parts.push(std::mem::take(&mut self.part));
            self.part.extend(begun);
        }
        self.part.extend(letter.to_lowercase());
        self.capitals = (capital, last);
    }

    fn take(&mut self) -> Option<Run> {
        let Self {
            mut parts,
            part,
            length: _,
            capitals: _,
        } = std::mem::take(self);
        parts.push(part);
        parts.retain(|part| !part.is_empty());
        let whole = parts.concat();
        if parts.len() < 2 {
            parts.clear();
        }
        (!whole.is_empty()).then_some(Run { whole, parts })
    }
}

/// Brings words to what they have in common with their other forms.
pub(super) struct Stems(Stemmer);

impl Stems {
    pub(super) fn new() -> Self {
        Self(Stemmer::create(Algorithm::English))
    }

    /// The stem of a word in lower case. Words of other alphabets stay as they are.
    pub(super) fn of(&self, word: &str) -> String {
        if word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_lowercase()) {
            self.0.stem(word).into_owned()
        } else {
            word.to_owned()
        }
    }

    /// The stems of everything in a text that says something, parts and wholes alike.
    pub(super) fn of_text(&self, text: &str, most: usize) -> Vec<String> {
        runs(text, most)
            .into_iter()
            .flat_map(|run| run.parts.into_iter().chain([run.whole]))
            .filter(|word| !is_stop_word(word))
            .map(|word| self.of(&word))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wholes(text: &str) -> Vec<String> {
        runs(text, 100).into_iter().map(|run| run.whole).collect()
    }

    #[test]
    fn names_of_programs_are_taken_apart() {
        for (text, parts) in [
            ("getUserById", &["get", "user", "by", "id"][..]),
            ("PDFFile", &["pdf", "file"]),
            ("GitHub", &["git", "hub"]),
            ("parseHTML", &["parse", "html"]),
            ("s3", &[]),
            ("EMAIL", &[]),
        ] {
            assert_eq!(runs(text, 9)[0].parts, parts, "{text}");
            assert_eq!(runs(text, 9)[0].whole, text.to_lowercase(), "{text}");
        }
        assert_eq!(wholes("send_email/v2-beta"), ["send", "email", "v2", "beta"]);
        assert_eq!(wholes("Crème  brûlée, naïve!"), ["creme", "brulee", "naive"]);
        assert_eq!(wholes("天気 и погода"), ["天気", "и", "погода"]);
        assert!(wholes(" \u{0}\u{301}!?🦀").is_empty());
        assert_eq!(runs(&"a ".repeat(1000), 7).len(), 7);
    }

    #[test]
    fn forms_of_a_word_have_one_stem() {
        let stems = Stems::new();
        for (one, other) in [
            ("translating", "translate"),
            ("invoices", "invoice"),
            ("scheduled", "schedule"),
            ("cities", "city"),
        ] {
            assert_eq!(stems.of(one), stems.of(other), "{one}");
        }
        assert_eq!(stems.of("погода"), "погода");
        let text = stems.of_text("the messages of a sendMessage", 100);
        assert_eq!(text, ["messag", "send", "messag", "sendmessag"]);
    }

    proptest! {
        #[test]
        fn whatever_the_text_it_has_bounded_words(text in ".{0,300}") {
            let stems = Stems::new();
            for run in runs(&text, 50) {
                prop_assert!(run.whole.chars().count() <= MAX_WORD * 4);
                stems.of(&run.whole);
            }
            prop_assert!(runs(&text, 50).len() <= 51);
        }
    }
}
