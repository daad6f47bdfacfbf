//! The index of tools: which words each is about, and how much.
//!
//! BM25 over fields of different weight (BM25F), computed once when the index is built, in whole numbers: what a search
//! adds up is the same on every machine.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::lexicon;
use super::spelling::Spelling;
use super::words::{Stems, runs};
use crate::tools::ToolDefinition;

/// What a word counts in each place where a tool may say it, in hundredths.
mod weight {
    pub(super) const NAME: u32 = 300;
    pub(super) const SUMMARY: u32 = 200;
    pub(super) const GROUP: u32 = 150;
    pub(super) const PROVIDER: u32 = 150;
    pub(super) const DESCRIPTION: u32 = 100;
    pub(super) const PARAMETER: u32 = 60;
}

/// Most words of one field that are looked at.
const MAX_WORDS: usize = 400;
/// Most parameters of a tool that are looked at.
const MAX_PARAMETERS: usize = 100;
/// Deepest parameters that are looked at: those of objects within objects.
const MAX_DEPTH: usize = 3;
/// More of the same word in one field adds nothing.
const MAX_REPEATS: u32 = 3;
/// Saturation: at this weight (in hundredths) a word counts half of the most that it can count.
const SATURATION: u64 = 120;
/// How much of a word's saturation depends on the length of the text about the tool, in percent.
const LENGTH_SHARE: u64 = 40;
/// The most that a word can count for a tool.
const FULL_IMPACT: u64 = 1000;

/// A tool in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its provider's id.
    pub provider: String,
    /// Its name within the provider.
    pub endpoint: String,
    /// `provider/endpoint`.
    pub slug: String,
    /// Its category, in lower case.
    pub category: Option<String>,
    /// Its packs, in lower case.
    pub packs: Vec<String>,
    /// How many different words its title has that say something.
    pub(super) title_words: u32,
}

/// What is known of a stem.
#[derive(Debug, Default)]
pub(super) struct Term {
    pub(super) stem: String,
    /// Tools by their place in the index, ascending, each with what the stem counts for it.
    pub(super) postings: Vec<(u32, u32)>,
    /// Tools whose title says it, by their place, ascending.
    pub(super) titles: Vec<u32>,
}

/// An index of tools; it never changes.
pub struct Index {
    /// By slug.
    pub(super) entries: Vec<Entry>,
    pub(super) terms: Vec<Term>,
    pub(super) by_stem: HashMap<String, u32>,
    pub(super) spelling: Spelling,
    /// What means the same as a stem, and what may stand for it.
    pub(super) same: HashMap<String, BTreeSet<String>>,
    pub(super) synonyms: HashMap<String, BTreeSet<String>>,
    pub(super) stems: Stems,
}

impl Index {
    /// An index of tools, each with its provider's id.
    pub fn new<'a>(tools: impl Iterator<Item = (&'a str, &'a ToolDefinition)>) -> Self {
        let stems = Stems::new();
        let sorted: BTreeMap<String, (&str, &ToolDefinition)> = tools
            .map(|(provider, tool)| (format!("{provider}/{}", tool.name), (provider, tool)))
            .collect();
        let texts: Vec<BTreeMap<String, u32>> = sorted
            .values()
            .map(|(provider, tool)| weighed(&stems, provider, tool))
            .collect();
        let titles: Vec<BTreeSet<String>> = sorted.values().map(|(_, tool)| title_of(&stems, tool)).collect();
        let mut index = Self {
            entries: sorted
                .into_iter()
                .zip(&titles)
                .map(|((slug, (provider, tool)), title)| entry(slug, provider, tool, title.len()))
                .collect(),
            terms: Vec::new(),
            by_stem: HashMap::new(),
            spelling: Spelling::default(),
            same: others(&stems, lexicon::same()),
            synonyms: others(&stems, lexicon::synonyms()),
            stems,
        };
        index.post(&texts);
        for (tool, title) in (0_u32..).zip(titles) {
            for stem in title {
                let number = index.number(&stem);
                if let Some(term) = index.term_mut(number) {
                    term.titles.push(tool);
                }
            }
        }
        index
    }

    /// How many tools it has.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The categories of its tools, each with how many there are.
    pub fn categories(&self) -> BTreeMap<&str, usize> {
        let mut groups = BTreeMap::new();
        for category in self.entries.iter().filter_map(|entry| entry.category.as_deref()) {
            let count: &mut usize = groups.entry(category).or_default();
            *count = count.saturating_add(1);
        }
        groups
    }

    /// The packs of its tools.
    pub fn packs(&self) -> BTreeSet<&str> {
        let packs = self.entries.iter().flat_map(|entry| entry.packs.iter());
        packs.map(String::as_str).collect()
    }

    /// The slugs of its tools, ascending.
    pub fn slugs(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.slug.as_str())
    }

    fn post(&mut self, texts: &[BTreeMap<String, u32>]) {
        let length = |text: &BTreeMap<String, u32>| text.values().copied().map(u64::from).sum::<u64>();
        let count = u64::try_from(texts.len()).unwrap_or(u64::MAX).max(1);
        let average = (texts.iter().map(length).sum::<u64>() / count).max(1);
        for (tool, text) in (0_u32..).zip(texts) {
            let relative = length(text).saturating_mul(LENGTH_SHARE) / average;
            let share = relative.saturating_add(100 - LENGTH_SHARE);
            let half = (SATURATION.saturating_mul(share) / 100).max(1);
            for (stem, weight) in text {
                let weight = u64::from(*weight);
                let impact = FULL_IMPACT.saturating_mul(weight) / weight.saturating_add(half).max(1);
                let number = self.number(stem);
                if let (Some(term), Ok(impact)) = (self.term_mut(number), u32::try_from(impact)) {
                    term.postings.push((tool, impact));
                }
            }
        }
    }

    /// The number of a stem, which is new if need be.
    fn number(&mut self, stem: &str) -> u32 {
        if let Some(number) = self.by_stem.get(stem) {
            return *number;
        }
        let number = u32::try_from(self.terms.len()).unwrap_or(u32::MAX);
        self.by_stem.insert(stem.to_owned(), number);
        self.spelling.learn(stem, number);
        self.terms.push(Term {
            stem: stem.to_owned(),
            ..Term::default()
        });
        number
    }

    fn term_mut(&mut self, number: u32) -> Option<&mut Term> {
        self.terms.get_mut(usize::try_from(number).ok()?)
    }

    pub(super) fn term(&self, number: u32) -> Option<&Term> {
        self.terms.get(usize::try_from(number).ok()?)
    }
}

/// The name of a group as groups are compared.
pub(super) fn group_name(name: &str) -> String {
    name.trim().to_lowercase()
}

fn entry(slug: String, provider: &str, tool: &ToolDefinition, title_words: usize) -> Entry {
    Entry {
        provider: provider.to_owned(),
        endpoint: tool.name.clone(),
        slug,
        category: tool.category.as_deref().map(group_name),
        packs: tool.packs.iter().map(|pack| group_name(pack)).collect(),
        title_words: u32::try_from(title_words).unwrap_or(u32::MAX),
    }
}

/// The words of a title, each as a whole.
fn title_of(stems: &Stems, tool: &ToolDefinition) -> BTreeSet<String> {
    let words = runs(&tool.title, MAX_WORDS).into_iter().map(|run| run.whole);
    words
        .filter(|word| !lexicon::is_stop_word(word))
        .map(|word| stems.of(&word))
        .collect()
}

/// The stems of everything that is said of a tool, with what each counts there.
fn weighed(stems: &Stems, provider: &str, tool: &ToolDefinition) -> BTreeMap<String, u32> {
    let mut weights = BTreeMap::new();
    let mut say = |weight: u32, text: &str| {
        let mut repeats: BTreeMap<String, u32> = BTreeMap::new();
        for stem in stems.of_text(text, MAX_WORDS) {
            let repeat = repeats.entry(stem).or_default();
            *repeat = repeat.saturating_add(1).min(MAX_REPEATS);
        }
        for (stem, repeats) in repeats {
            // The second and third time count half.
            let counted = weight.saturating_mul(repeats.saturating_add(1)) / 2;
            let total: &mut u32 = weights.entry(stem).or_default();
            *total = total.saturating_add(counted);
        }
    };
    say(weight::NAME, &format!("{} {}", tool.name, tool.title));
    say(weight::SUMMARY, &tool.summary);
    say(weight::PROVIDER, provider);
    let groups: Vec<&str> = tool
        .category
        .iter()
        .chain(&tool.packs)
        .map(String::as_str)
        .collect();
    say(weight::GROUP, &groups.join(" "));
    say(weight::DESCRIPTION, &tool.description);
    let mut parameters = Vec::new();
    describe_parameters(&tool.schema, MAX_DEPTH, &mut parameters);
    say(weight::PARAMETER, &parameters.join(" "));
    weights
}

/// The names and descriptions of a schema's members.
fn describe_parameters<'a>(schema: &'a Value, depth: usize, told: &mut Vec<&'a str>) {
    let Some(members) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    for (name, member) in members {
        if told.len() >= MAX_PARAMETERS.saturating_mul(2) {
            return;
        }
        told.push(name);
        told.extend(member.get("description").and_then(Value::as_str));
        if let Some(deeper) = depth.checked_sub(1) {
            describe_parameters(member, deeper, told);
            if let Some(items) = member.get("items") {
                describe_parameters(items, deeper, told);
            }
        }
    }
}

/// The other stems of the groups that each stem is in.
fn others<'a>(
    stems: &Stems,
    groups: impl Iterator<Item = Vec<&'a str>>,
) -> HashMap<String, BTreeSet<String>> {
    let mut others: HashMap<String, BTreeSet<String>> = HashMap::new();
    for group in groups {
        let group: BTreeSet<String> = group.iter().map(|word| stems.of(word)).collect();
        for stem in &group {
            let rest = group.iter().filter(|other| *other != stem).cloned();
            others.entry(stem.clone()).or_default().extend(rest);
        }
    }
    others
}
