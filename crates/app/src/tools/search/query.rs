//! Finding tools for a task: what its words may mean, and which tools are about them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::Serialize;

use super::index::{Entry, Index};
use super::lexicon::{is_light, is_stop_word, phrase};
use super::patterns::kind_of;
use super::words::runs;

/// Most words of a task that are read.
const MAX_WORDS: usize = 128;
/// Most different words that are searched for.
const MAX_TERMS: usize = 48;
/// What a match counts, in percent: of the word itself,
const EXACT: u64 = 100;
/// of two words that the task writes apart and the tool as one, or the other way round,
const JOINED: u64 = 90;
/// of a word that was perhaps meant,
const CORRECTED: u64 = 75;
/// of one that means the same,
const SAME: u64 = 90;
/// and of one that may stand for it.
const SYNONYM: u64 = 60;
/// A light word counts one part in so many,
const LIGHT: u64 = 3;
/// and the first that is not light so many halves: it says most often what is to be done.
const FIRST: u64 = 3;
/// What a word counts that no tool says, in 256ths of a bit: names and numbers are a part of most tasks.
const UNKNOWN: u64 = 384;
/// A tool of which less than this share of the task is true is not shown, in percent.
const LEAST_COVERAGE: u64 = 8;
/// From this share on a match is strong, and partial; in percent.
const STRONG: u64 = 60;
const PARTIAL: u64 = 35;
/// Shortest part of a word that is taken apart, in letters.
const MIN_PART: usize = 3;
/// How much more a tool counts whose title says nothing that the task does not, in percent, when it says the whole task.
const TITLED: u64 = 50;
/// Above every sum of scores: the tool that is asked for by its name.
const NAMED: u64 = 1 << 48;

/// How much of a task a tool is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MatchQuality {
    /// A little of it.
    Weak,
    /// A part of it.
    Partial,
    /// Most of it.
    Strong,
}

/// A tool that was found.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    /// Which.
    pub entry: &'a Entry,
    /// How well it fits, compared with others of the same search only.
    pub score: u64,
    /// How much of the task it is about.
    pub quality: MatchQuality,
}

/// A word of a task: what it weighs, and the stems that count as it.
#[derive(Debug)]
struct Wanted {
    weight: u64,
    /// The number of a stem, what it weighs and which share of that counts.
    stems: Vec<(u32, u64, u64)>,
}

impl Wanted {
    /// Lets it count so many parts of what it did.
    fn count(&mut self, times: u64, parts: u64) {
        let counted = |weight: u64| (weight.saturating_mul(times) / parts).max(1);
        self.weight = counted(self.weight);
        for (_, weight, _) in &mut self.stems {
            *weight = counted(*weight);
        }
    }
}

impl Index {
    /// The tools for a task, best first; of two that fit equally well the one whose slug comes first.
    pub fn search(&self, task: &str) -> Vec<Hit<'_>> {
        let wanted = self.wanted(task);
        let whole: u64 = wanted.iter().map(|word| word.weight).sum::<u64>().max(1);
        let mut scores = vec![0_u64; self.entries.len()];
        let mut covered = vec![0_u64; self.entries.len()];
        for word in &wanted {
            self.add(word, &mut scores, &mut covered);
        }
        let titled = self.titled(&wanted);
        let named = task.trim().to_lowercase();
        let mut hits: Vec<Hit<'_>> = self
            .entries
            .iter()
            .zip(scores.into_iter().zip(covered).zip(titled))
            .filter_map(|(entry, ((score, covered), titled))| {
                let coverage = covered / whole;
                let titled = titled / whole;
                if entry.slug == named {
                    let quality = MatchQuality::Strong;
                    return Some(Hit {
                        entry,
                        score: NAMED,
                        quality,
                    });
                }
                (score > 0 && coverage >= LEAST_COVERAGE).then(|| Hit {
                    entry,
                    // A tool that is about more of the task goes before one that is very much about one word of it.
                    score: score
                        .saturating_mul(coverage.saturating_add(100))
                        .saturating_mul(titled.saturating_mul(TITLED) / 100 + 100)
                        / 20_000,
                    quality: quality(coverage),
                })
            })
            .collect();
        // The entries are in the order of their slugs, and sorting keeps that among equals.
        hits.sort_by_key(|hit| Reverse(hit.score));
        hits
    }

    /// Every tool, by slug, for a search that names no task.
    pub fn all(&self) -> impl Iterator<Item = Hit<'_>> {
        self.entries.iter().map(|entry| Hit {
            entry,
            score: 0,
            quality: MatchQuality::Strong,
        })
    }

    /// Adds what one word of the task counts for each tool: the best of its stems.
    fn add(&self, word: &Wanted, scores: &mut [u64], covered: &mut [u64]) {
        let mut best = vec![(0_u64, 0_u64); self.entries.len()];
        for (number, weight, share) in &word.stems {
            let postings = self.term(*number).map(|term| term.postings.as_slice());
            for (tool, impact) in postings.unwrap_or_default() {
                if let Some(best) = usize::try_from(*tool).ok().and_then(|tool| best.get_mut(tool)) {
                    best.0 = best
                        .0
                        .max(weight.saturating_mul(*share).saturating_mul(u64::from(*impact)) / 1000);
                    best.1 = best.1.max(*share);
                }
            }
        }
        for ((score, covered), (counted, share)) in scores.iter_mut().zip(covered).zip(best) {
            *score = score.saturating_add(counted);
            *covered = covered.saturating_add(word.weight.saturating_mul(share));
        }
    }

    /// How much of the task the title of each tool says, like what is covered; nothing when it also says something else.
    fn titled(&self, wanted: &[Wanted]) -> Vec<u64> {
        let mut titles: Vec<(u64, u32)> = vec![(0, 0); self.entries.len()];
        let mut counted = BTreeSet::new();
        for word in wanted {
            let mut best = vec![0_u64; self.entries.len()];
            for (number, _, share) in &word.stems {
                let tools = self.term(*number).map(|term| term.titles.as_slice());
                let is_new = counted.insert(*number);
                for tool in tools.unwrap_or_default() {
                    let Ok(place) = usize::try_from(*tool) else {
                        continue;
                    };
                    if let (Some(best), Some((_, words))) = (best.get_mut(place), titles.get_mut(place)) {
                        *best = (*best).max(*share);
                        *words = words.saturating_add(u32::from(is_new));
                    }
                }
            }
            for ((said, _), share) in titles.iter_mut().zip(best) {
                *said = said.saturating_add(word.weight.saturating_mul(share));
            }
        }
        let whole =
            |((said, words), entry): ((u64, u32), &Entry)| if words < entry.title_words { 0 } else { said };
        titles.into_iter().zip(&self.entries).map(whole).collect()
    }

    /// What is searched for.
    fn wanted(&self, task: &str) -> Vec<Wanted> {
        let words = self.words(task);
        let stems: Vec<String> = words.iter().map(|word| self.stems.of(word)).collect();
        let mut seen = BTreeSet::new();
        let mut wanted = Vec::new();
        let mut begun = false;
        for (at, (word, stem)) in words.iter().zip(&stems).enumerate() {
            if wanted.len() >= MAX_TERMS || !seen.insert(stem) {
                continue;
            }
            let mut found = self.meanings(word, stem);
            let before = at.checked_sub(1).and_then(|before| words.get(before));
            let after = words.get(at.saturating_add(1));
            let joined = [
                before.map(|before| format!("{before}{word}")),
                after.map(|after| format!("{word}{after}")),
            ];
            for joined in joined.into_iter().flatten() {
                found.extend(self.known(&self.stems.of(&joined)).map(|number| (number, JOINED)));
            }
            let mut word_of_task = self.weigh(stem, &found);
            if is_light(word) {
                word_of_task.count(1, LIGHT);
            } else if !begun {
                word_of_task.count(FIRST, 2);
                begun = true;
            }
            wanted.push(word_of_task);
        }
        wanted
    }

    /// The words of a task that say something, with phrases replaced by the word that they mean.
    fn words(&self, task: &str) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        for part in task.split_whitespace().take(MAX_WORDS) {
            if let Some(kind) = kind_of(part) {
                words.extend(kind.iter().map(|word| (*word).to_owned()));
                continue;
            }
            for run in runs(part, MAX_WORDS) {
                if run.parts.is_empty() || self.known(&self.stems.of(&run.whole)).is_some() {
                    words.push(run.whole);
                } else {
                    words.extend(run.parts);
                }
            }
        }
        words.truncate(MAX_WORDS);
        let mut said: Vec<String> = Vec::new();
        let mut rest = words.as_slice();
        while let Some((word, others)) = rest.split_first() {
            if let Some((length, meant)) = phrase(rest) {
                said.extend(meant.iter().map(|word| (*word).to_owned()));
                rest = rest.get(length..).unwrap_or_default();
            } else {
                if !is_stop_word(word) {
                    said.push(word.clone());
                }
                rest = others;
            }
        }
        said
    }

    fn known(&self, stem: &str) -> Option<u32> {
        self.by_stem.get(stem).copied()
    }

    /// The stems that a word may mean, each with the share that counts.
    fn meanings(&self, word: &str, stem: &str) -> Vec<(u32, u64)> {
        let mut found: Vec<(u32, u64)> = Vec::new();
        found.extend(self.known(stem).map(|number| (number, EXACT)));
        for (others, share) in [(&self.same, SAME), (&self.synonyms, SYNONYM)] {
            let others = others.get(stem).into_iter().flatten();
            found.extend(others.filter_map(|other| Some((self.known(other)?, share))));
        }
        if found.is_empty()
            && let Some(positive) = positive(word)
        {
            let stem = self.stems.of(positive);
            found.extend(self.known(&stem).map(|number| (number, SAME)));
            let others = self.synonyms.get(&stem).into_iter().flatten();
            found.extend(others.filter_map(|other| Some((self.known(other)?, SYNONYM))));
        }
        if found.is_empty() {
            found = self.parts(word);
        }
        if found.is_empty() {
            let word_of = |number| self.term(number).map(|term| term.stem.as_str());
            let near = self.spelling.near(stem, word_of);
            found.extend(near.into_iter().map(|number| (number, CORRECTED)));
        }
        found
    }

    /// The known words that an unknown one is made of.
    fn parts(&self, word: &str) -> Vec<(u32, u64)> {
        let places = word.char_indices().map(|(at, _)| at);
        let places = places
            .skip(MIN_PART)
            .filter(|at| word.len().saturating_sub(*at) >= MIN_PART);
        let mut pairs = places.filter_map(|at| {
            let (left, right) = word.split_at_checked(at)?;
            let left = self.known(&self.stems.of(left))?;
            let right = self.known(&self.stems.of(right))?;
            Some([(left, JOINED), (right, JOINED)])
        });
        pairs.next().map(Vec::from).unwrap_or_default()
    }

    /// What a word weighs: the rarer it is among the tools, the more.
    fn weigh(&self, stem: &str, found: &[(u32, u64)]) -> Wanted {
        let own = self.known(stem).map(|number| self.rarity(number));
        // What only stands for the word never weighs more than the word itself.
        let weight_of = |number: u32| {
            let rarity = self.rarity(number);
            own.map_or(rarity, |own| rarity.min(own))
        };
        let stems: Vec<(u32, u64, u64)> = found
            .iter()
            .map(|(number, share)| (*number, weight_of(*number), *share))
            .collect();
        let heaviest = stems.iter().map(|(_, weight, _)| *weight).max();
        Wanted {
            weight: own.or(heaviest).unwrap_or(UNKNOWN),
            stems,
        }
    }

    /// How rare a stem is, in 256ths of a bit: `log2((n + 1) / (df + 1/2))`.
    fn rarity(&self, number: u32) -> u64 {
        let tools = u64::try_from(self.entries.len()).unwrap_or(u64::MAX);
        let with = self.term(number).map_or(0, |term| term.postings.len());
        let with = u64::try_from(with).unwrap_or(u64::MAX);
        let double = |count: u64, more: u64| count.saturating_mul(2).saturating_add(more);
        // Never nothing: a word that every tool says still tells it from one that was not asked.
        log2_256(double(tools, 2), double(with, 1)).max(16)
    }
}

/// What is compared: `cold` of `colder` and `coldest`.
fn positive(word: &str) -> Option<&str> {
    let positive = word.strip_suffix("er").or_else(|| word.strip_suffix("est"))?;
    (positive.chars().count() >= MIN_PART).then_some(positive)
}

const fn quality(coverage: u64) -> MatchQuality {
    if coverage >= STRONG {
        MatchQuality::Strong
    } else if coverage >= PARTIAL {
        MatchQuality::Partial
    } else {
        MatchQuality::Weak
    }
}

/// The logarithm to the base 2 of a fraction of one or more, in 256ths.
fn log2_256(numerator: u64, denominator: u64) -> u64 {
    let fixed = (u128::from(numerator) << 16) / u128::from(denominator.max(1));
    let Some(whole) = fixed.checked_ilog2().and_then(|bits| bits.checked_sub(16)) else {
        return 0;
    };
    let mut rest = fixed >> whole;
    let mut result = u64::from(whole);
    for _ in 0..8 {
        rest = rest.saturating_mul(rest) >> 16;
        let bit = rest >> 17;
        rest >>= bit;
        result = (result << 1) | u64::from(bit > 0);
    }
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::tools::ToolDefinition;

    fn tool(name: &str, title: &str, summary: &str) -> ToolDefinition {
        ToolDefinition {
            name: name.to_owned(),
            title: title.to_owned(),
            summary: summary.to_owned(),
            schema: json!({ "type": "object" }),
            ..ToolDefinition::default()
        }
    }

    fn index() -> Index {
        let tools = [
            tool(
                "send-email",
                "Send an email",
                "Delivers a message to one or more addresses.",
            ),
            tool("list-emails", "List messages", "Finds messages in a mailbox."),
            tool("create-event", "Create an event", "Adds a meeting to a calendar."),
            tool(
                "delete-event",
                "Delete an event",
                "Takes a meeting out of a calendar.",
            ),
            tool(
                "forecast",
                "Forecast",
                "What the weather will be in the next days.",
            ),
            tool("translate", "Translate", "Brings a text into another language."),
            tool(
                "registerWebhook",
                "Register a webhook",
                "Calls an address back when something happens.",
            ),
        ];
        Index::new(tools.iter().map(|tool| ("acme", tool)))
    }

    fn first(task: &str) -> String {
        let index = index();
        index
            .search(task)
            .first()
            .map_or_else(String::new, |hit| hit.entry.endpoint.clone())
    }

    #[test]
    fn words_their_forms_their_synonyms_and_slips_of_them_find_a_tool() {
        for (task, endpoint) in [
            ("mail the minutes to everybody", "send-email"),
            ("remove tomorrow's appointment", "delete-event"),
            ("put a meeting into my calendars", "create-event"),
            ("will it rain", "forecast"),
            ("tranlsate a letter", "translate"),
            ("translating letters", "translate"),
            ("set up a web hook", "registerWebhook"),
            ("acme/list-emails", "list-emails"),
            ("list-emails", "list-emails"),
            ("LIST_EMAILS", "list-emails"),
        ] {
            assert_eq!(first(task), endpoint, "{task}");
        }
        for nothing in ["", " ", "the of and", "!?", "🦀", "zzzzzz", "\u{0}"] {
            assert!(index().search(nothing).is_empty(), "{nothing:?}");
        }
    }

    #[test]
    fn a_title_that_says_the_task_and_nothing_else_goes_first() {
        let subscription = "Get a repository subscription for the user of this repository";
        let tools = [
            tool(
                "activity-get-repo-subscription",
                subscription,
                "Gets a repository, a repository's subscription.",
            ),
            tool(
                "repos-get",
                "Get a repository",
                "The parent and source objects are present when the repository is a fork.",
            ),
            tool(
                "repos-get-branch",
                "Get a branch of a repository",
                "Gets a branch of the repository.",
            ),
        ];
        let index = Index::new(tools.iter().map(|tool| ("forge", tool)));
        for (task, endpoint) in [
            ("get a repository", "repos-get"),
            ("get the repository's branch", "repos-get-branch"),
        ] {
            assert_eq!(index.search(task)[0].entry.endpoint, endpoint, "{task}");
        }
    }

    #[test]
    fn the_quality_says_how_much_of_the_task_is_matched() {
        let index = index();
        let quality = |task: &str| index.search(task).first().map(|hit| hit.quality);
        assert_eq!(quality("translate a text"), Some(MatchQuality::Strong));
        assert_eq!(quality("acme/forecast"), Some(MatchQuality::Strong));
        let long = "translate zzzzz yyyyy xxxxx wwwww vvvvv uuuuu ttttt sssss rrrrr";
        assert!(quality(long).is_some_and(|quality| quality < MatchQuality::Strong));
    }

    #[test]
    fn a_logarithm_is_near_the_real_one() {
        for (numerator, denominator, expected) in [
            (1, 1, 0),
            (2, 1, 256),
            (3, 1, 405),
            (10, 1, 850),
            (10_002, 1, 3401),
            (10_002, 10_001, 0),
            (1, 2, 0),
            (5, 0, 594),
        ] {
            let found = log2_256(numerator, denominator);
            assert!(
                found.abs_diff(expected) <= 2,
                "{numerator}/{denominator}: {found}"
            );
        }
    }

    proptest! {
        #[test]
        fn whatever_is_asked_there_is_an_ordered_answer(task in "\\PC{0,400}") {
            let index = index();
            let hits = index.search(&task);
            let ranks: Vec<_> = hits.iter().map(|hit| (Reverse(hit.score), &hit.entry.slug)).collect();
            prop_assert!(ranks.is_sorted());
        }
    }
}
