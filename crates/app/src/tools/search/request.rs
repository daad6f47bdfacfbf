//! A search as it is asked for: read, narrowed to groups, cut into pages.
//!
//! The rule: a group narrows and never widens. What is not known is refused with the names that come nearest.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};
use turnpike_core::errors::ErrorCode;

use super::index::{Entry, Index, group_name};
use super::query::{Hit, MatchQuality};
use super::spelling::nearest;
use crate::error::AppError;
use crate::fields::Fields;
use crate::paging::cursor_invalid;

/// Longest task, in characters.
const MAX_QUERY: usize = 1000;
/// Longest name of a group, in characters.
const MAX_GROUP: usize = 100;
/// Longest cursor.
const MAX_CURSOR: usize = 512;
/// Results of a page, unless the request says otherwise, and the most of them.
const PAGE: i64 = 10;
const MAX_PAGE: i64 = 50;
/// Most names that are suggested.
const MAX_SUGGESTIONS: usize = 5;

/// What is searched for.
#[derive(Debug)]
pub(crate) struct SearchRequest {
    query: Option<String>,
    category: Option<String>,
    pack: Option<String>,
    enabled: Option<bool>,
    limit: usize,
    after: Option<Place>,
}

/// A place in the results of one search: behind this tool with this score.
#[derive(Debug)]
struct Place {
    score: u64,
    slug: String,
}

/// A page of results.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    /// The tools, each with whether the caller could execute it.
    pub(crate) hits: Vec<(Hit<'a>, bool)>,
    /// Where the next page begins.
    pub(crate) next_cursor: Option<String>,
    /// Why there is nothing, or nothing better.
    pub(crate) reason: Option<&'static str>,
    /// What could be searched for instead.
    pub(crate) suggestions: Vec<String>,
}

impl SearchRequest {
    /// Reads a request's body; a member that is null counts as absent.
    ///
    /// # Errors
    /// `INVALID_JSON`, `UNKNOWN_FIELD`, `VALIDATION_ERROR`, `CURSOR_INVALID`.
    pub(crate) fn parse(raw: &[u8]) -> Result<Self, AppError> {
        let known = ["query", "category", "pack", "enabled", "limit", "cursor"];
        let mut fields = Fields::parse(raw, &known)?.without_nulls();
        let query = fields.prose("query", 1..=MAX_QUERY)?;
        let category = fields.words("category", 1..=MAX_GROUP)?;
        let pack = fields.words("pack", 1..=MAX_GROUP)?;
        if query.is_none() && category.is_none() && pack.is_none() {
            let message = "say what is to be done, or name a category or a pack";
            return Err(AppError::invalid("query", message));
        }
        let limit = fields.integer("limit", 1..=MAX_PAGE)?.unwrap_or(PAGE);
        let mut request = Self {
            query,
            category: category.as_deref().map(group_name),
            pack: pack.as_deref().map(group_name),
            enabled: fields.boolean("enabled")?,
            limit: usize::try_from(limit).unwrap_or_default(),
            after: None,
        };
        let cursor = fields.text("cursor")?;
        request.after = cursor.map(|cursor| request.place(&cursor)).transpose()?;
        Ok(request)
    }

    /// Tells the cursors of this search from those of others, whatever the page size.
    fn fingerprint(&self) -> String {
        let asked = serde_json::json!([self.query, self.category, self.pack, self.enabled]);
        let hash = Sha256::digest(asked.to_string());
        hex::encode(hash.first_chunk::<8>().copied().unwrap_or_default())
    }

    fn cursor(&self, hit: &Hit<'_>) -> String {
        format!("{}.{:x}.{}", self.fingerprint(), hit.score, hit.entry.slug)
    }

    fn place(&self, cursor: &str) -> Result<Place, AppError> {
        let mut parts = cursor.splitn(3, '.');
        let (of, score, slug) = (parts.next(), parts.next(), parts.next());
        let ours = cursor.len() <= MAX_CURSOR && of == Some(&*self.fingerprint());
        let score = score.and_then(|score| u64::from_str_radix(score, 16).ok());
        match (score, slug) {
            (Some(score), Some(slug)) if ours => Ok(Place {
                score,
                slug: slug.to_owned(),
            }),
            _ => Err(cursor_invalid()),
        }
    }

    fn is_in_its_groups(&self, entry: &Entry) -> bool {
        let category = self.category.as_ref();
        let pack = self.pack.as_ref();
        category.is_none_or(|category| entry.category.as_ref() == Some(category))
            && pack.is_none_or(|pack| entry.packs.contains(pack))
    }
}

/// Searches `index`; `enabled` says whether the caller could execute a tool, `None` when it is not sold any more.
///
/// # Errors
/// `VALIDATION_ERROR` with `suggestions` for an unknown category or pack.
pub(crate) fn search<'a>(
    index: &'a Index,
    request: &SearchRequest,
    enabled: impl Fn(&Entry) -> Option<bool>,
) -> Result<Found<'a>, AppError> {
    let categories = || index.categories();
    require_group("category", request.category.as_ref(), || {
        categories().into_keys().collect()
    })?;
    require_group("pack", request.pack.as_ref(), || index.packs())?;
    let ranked: Vec<Hit<'a>> = match &request.query {
        Some(query) => index.search(query),
        None => index.all().collect(),
    };
    let grouped = || ranked.iter().filter(|hit| request.is_in_its_groups(hit.entry));
    let is_behind = |hit: &&Hit<'_>| {
        request
            .after
            .as_ref()
            .is_none_or(|place| (Reverse(hit.score), &hit.entry.slug) > (Reverse(place.score), &place.slug))
    };
    let asked = |hit: &Hit<'a>| {
        let enabled = enabled(hit.entry)?;
        request
            .enabled
            .is_none_or(|wanted| wanted == enabled)
            .then_some((*hit, enabled))
    };
    let most = request.limit.saturating_add(1);
    let mut hits: Vec<(Hit<'a>, bool)> = grouped().filter(is_behind).filter_map(asked).take(most).collect();
    let more = hits.len() > request.limit;
    hits.truncate(request.limit);
    let next_cursor = hits.last().filter(|_| more).map(|(hit, _)| request.cursor(hit));
    let (reason, suggestions) = match hits.first() {
        Some((hit, _)) if hit.quality == MatchQuality::Weak => {
            (Some("no tool matches well; these come nearest"), Vec::new())
        }
        Some(_) => (None, Vec::new()),
        None if request.after.is_some() => (Some("there are no further tools"), Vec::new()),
        None if ranked.is_empty() => {
            let mut largest: Vec<(usize, &str)> = categories()
                .into_iter()
                .map(|(name, count)| (count, name))
                .collect();
            largest.sort_unstable_by_key(|(count, name)| (Reverse(*count), *name));
            let names = largest.into_iter().map(|(_, name)| name);
            (Some("no tool matches; these categories there are"), first(names))
        }
        None if grouped().next().is_none() => {
            let names = ranked.iter().filter_map(|hit| hit.entry.category.as_deref());
            let reason = if request.query.is_some() {
                "tools match, but none of them is in the group; they are in these categories"
            } else {
                "no tool is in both groups"
            };
            let names = names.filter(|_| request.query.is_some());
            (Some(reason), first(names))
        }
        None => {
            let reason = if request.enabled == Some(false) {
                "tools match, and all of them are enabled"
            } else {
                "tools match, but none of them is enabled for this caller"
            };
            (Some(reason), first(grouped().map(|hit| hit.entry.slug.as_str())))
        }
    };
    Ok(Found {
        hits,
        next_cursor,
        reason,
        suggestions,
    })
}

/// The first few different names.
fn first<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let different = names.filter(|name| seen.insert(*name));
    different.take(MAX_SUGGESTIONS).map(str::to_owned).collect()
}

fn require_group<'a>(
    path: &str,
    asked: Option<&String>,
    known: impl Fn() -> BTreeSet<&'a str>,
) -> Result<(), AppError> {
    let Some(asked) = asked else { return Ok(()) };
    let known = known();
    if known.contains(asked.as_str()) {
        return Ok(());
    }
    let near = nearest(asked, known.into_iter(), MAX_SUGGESTIONS);
    Err(AppError::invalid(path, format!("there is no {path} of that name")).with("suggestions", near))
}

/// A slug that nobody has, with those that come nearest.
pub(crate) fn unknown_slug(index: &Index, slug: &str) -> AppError {
    let near = nearest(slug, index.slugs(), MAX_SUGGESTIONS);
    AppError::new(ErrorCode::EndpointNotFound, "there is no such tool").with("suggestions", near)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::tools::ToolDefinition;

    fn index() -> Index {
        let tool = |name: &str, category: &str, packs: &[&str], summary: &str| ToolDefinition {
            name: name.to_owned(),
            category: Some(category.to_owned()),
            packs: packs.iter().map(|pack| (*pack).to_owned()).collect(),
            summary: summary.to_owned(),
            schema: json!({ "type": "object" }),
            ..ToolDefinition::default()
        };
        let tools = [
            tool("forecast", "Weather", &["travel"], "What the weather will be."),
            tool("current", "weather", &["travel", "home"], "The weather now."),
            tool("send", "mail", &["office"], "Sends a mail."),
            tool("list", "mail", &["office"], "Finds mails."),
        ];
        Index::new(tools.iter().map(|tool| ("acme", tool)))
    }

    fn slugs(found: &Found<'_>) -> Vec<String> {
        found
            .hits
            .iter()
            .map(|(hit, _)| hit.entry.endpoint.clone())
            .collect()
    }

    /// Slugs, reason and suggestions.
    type Told = (Vec<String>, Option<&'static str>, Vec<String>);

    fn ask(body: &Value) -> Result<Told, AppError> {
        let index = index();
        let request = SearchRequest::parse(body.to_string().as_bytes())?;
        let found = search(&index, &request, |entry| Some(entry.endpoint != "send"))?;
        Ok((slugs(&found), found.reason, found.suggestions.clone()))
    }

    #[test]
    fn groups_narrow_and_never_widen() {
        assert_eq!(
            ask(&json!({ "category": "weather" })).unwrap().0,
            ["current", "forecast"]
        );
        assert_eq!(ask(&json!({ "category": " WEATHER " })).unwrap().0.len(), 2);
        let both = json!({ "category": "weather", "pack": "home" });
        assert_eq!(ask(&both).unwrap().0, ["current"]);
        let neither = ask(&json!({ "category": "weather", "pack": "office" })).unwrap();
        assert_eq!(
            (neither.0.len(), neither.1),
            (0, Some("no tool is in both groups"))
        );
        let elsewhere = ask(&json!({ "query": "weather", "category": "mail" })).unwrap();
        assert!(
            elsewhere.0.is_empty() && elsewhere.2 == ["weather"],
            "{elsewhere:?}"
        );
        for body in [
            json!({ "category": "wether" }),
            json!({ "query": "mail", "category": "wether" }),
        ] {
            let refused = ask(&body).unwrap_err();
            assert_eq!(refused.code, ErrorCode::ValidationError);
            assert_eq!(refused.members["suggestions"][0], "weather");
        }
        let refused = ask(&json!({ "category": "weather", "pack": "offices" })).unwrap_err();
        assert_eq!(refused.members["suggestions"][0], "office");
    }

    #[test]
    fn what_is_enabled_can_be_asked_for() {
        assert_eq!(ask(&json!({ "category": "mail" })).unwrap().0, ["list", "send"]);
        assert_eq!(
            ask(&json!({ "category": "mail", "enabled": true })).unwrap().0,
            ["list"]
        );
        assert_eq!(
            ask(&json!({ "category": "mail", "enabled": false })).unwrap().0,
            ["send"]
        );
        let none = ask(&json!({ "category": "weather", "enabled": false })).unwrap();
        assert!(none.0.is_empty() && none.1.is_some());
        let nothing = ask(&json!({ "query": "zzzzz" })).unwrap();
        assert_eq!(nothing.2, ["mail", "weather"]);
    }

    #[test]
    fn pages_follow_each_other_and_belong_to_one_search() {
        let index = index();
        for search_for in [
            json!({ "category": "weather" }),
            json!({ "query": "the weather mail" }),
        ] {
            let page = |limit: usize, cursor: Option<&str>| {
                let mut body = search_for.clone();
                body["limit"] = json!(limit);
                body["cursor"] = json!(cursor);
                let request = SearchRequest::parse(body.to_string().as_bytes()).unwrap();
                let found = search(&index, &request, |_| Some(true)).unwrap();
                (slugs(&found), found.next_cursor)
            };
            let (all, none) = page(50, None);
            assert!(all.len() > 1 && none.is_none());
            let mut paged = Vec::new();
            let mut cursor = None;
            loop {
                let (slugs, next) = page(1, cursor.as_deref());
                paged.extend(slugs);
                cursor = next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(paged, all);
            let (_, cursor) = page(1, None);
            let other = json!({ "query": "another", "cursor": cursor });
            let refused = SearchRequest::parse(other.to_string().as_bytes()).unwrap_err();
            assert_eq!(refused.code, ErrorCode::CursorInvalid);
        }
        for cursor in ["", ".", "..", "x.y.z", "0.0.a/b", &"x".repeat(1000)] {
            let body = json!({ "query": "mail", "cursor": cursor });
            let refused = SearchRequest::parse(body.to_string().as_bytes()).unwrap_err();
            assert_eq!(refused.code, ErrorCode::CursorInvalid, "{cursor}");
        }
    }
}
