//! Whether the right tool is found: some three hundred tools in the words of interfaces, tasks in the words of people.
//!
//! `retrieval/tools.txt` is the catalogue, `tasks.txt` the sentences that the ranking was tuned on, and
//! `tasks-held-out.txt` sentences that it was never tuned on; they stay so. A line of a task names the one tool that must
//! be among the first three.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use serde_json::{Map, Value, json};
use turnpike_app::tools::ToolDefinition;
use turnpike_app::tools::search::Index;

const TOOLS: &str = include_str!("retrieval/tools.txt");
const TASKS: &str = include_str!("retrieval/tasks.txt");
const HELD_OUT: &str = include_str!("retrieval/tasks-held-out.txt");
/// How many results somebody looks at.
const LOOKED_AT: usize = 3;

/// The tools, each with its provider.
fn tools() -> Vec<(String, ToolDefinition)> {
    let mut category = "";
    let mut tools = Vec::new();
    for line in TOOLS.lines() {
        if let Some(name) = line.strip_prefix("# ") {
            category = name;
            continue;
        }
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [slug, title, packs, summary, parameters] = parts.as_slice() else {
            panic!("no tool: {line}");
        };
        let (provider, name) = slug.split_once('/').unwrap();
        let parameter = |text: &str| {
            let (name, description) = text.split_once(':').unwrap();
            let description = description.trim();
            (
                name.trim().to_owned(),
                json!({ "type": "string", "description": description }),
            )
        };
        let parameters: Map<String, Value> = parameters.split(';').map(parameter).collect();
        let tool = ToolDefinition {
            name: name.to_owned(),
            title: (*title).to_owned(),
            summary: (*summary).to_owned(),
            category: Some(category.to_owned()),
            packs: packs.split(',').map(str::to_owned).collect(),
            schema: json!({ "type": "object", "properties": parameters }),
            ..ToolDefinition::default()
        };
        tools.push((provider.to_owned(), tool));
    }
    tools
}

fn index() -> Index {
    let tools = tools();
    Index::new(tools.iter().map(|(provider, tool)| (provider.as_str(), tool)))
}

fn tasks(text: &'static str) -> Vec<(&'static str, &'static str)> {
    text.lines().map(|line| line.split_once(" | ").unwrap()).collect()
}

/// How many of the tasks have the right tool among the first three, and what is told of the others.
fn found(index: &Index, text: &'static str) -> (usize, usize, String) {
    let tasks = tasks(text);
    let mut told = Vec::new();
    let mut good = 0;
    for (task, slug) in &tasks {
        let hits = index.search(task);
        let place = hits.iter().position(|hit| hit.entry.slug == *slug);
        if place.is_some_and(|place| place < LOOKED_AT) {
            good += 1;
            continue;
        }
        let first: Vec<String> = hits
            .iter()
            .take(LOOKED_AT)
            .map(|hit| format!("{} {:?} {}", hit.entry.slug, hit.quality, hit.score))
            .collect();
        told.push(format!("{task}: {slug} is at {place:?}, before it {first:?}"));
    }
    (good, tasks.len(), told.join("\n"))
}

#[test]
fn the_right_tool_is_among_the_first_three() {
    let index = index();
    assert!(index.len() >= 200, "{} tools", index.len());
    // Of the sentences that nobody tuned on some may be missed; how many is told, and far fewer would be a step back.
    for (name, text, least, percent) in [("tuned on", TASKS, 60, 90), ("held out", HELD_OUT, 20, 80)] {
        let (good, all, told) = found(&index, text);
        println!("{name}: {good} of {all}\n{told}");
        assert!(all >= least, "{name}: {all} tasks");
        assert!(good * 100 >= all * percent, "{name}: {good} of {all}\n{told}");
    }
}

#[test]
fn every_tool_is_found_by_its_title_and_by_its_slug() {
    let index = index();
    for (provider, tool) in tools() {
        let slug = format!("{provider}/{}", tool.name);
        let place = |task: &str| index.search(task).iter().position(|hit| hit.entry.slug == slug);
        assert_eq!(place(&slug), Some(0), "{slug}");
        assert!(
            place(&tool.title).is_some_and(|place| place < LOOKED_AT),
            "{slug}: {}",
            tool.title
        );
    }
}

#[test]
fn every_task_names_a_tool_that_there_is() {
    let index = index();
    for (task, slug) in tasks(TASKS).into_iter().chain(tasks(HELD_OUT)) {
        assert!(index.slugs().any(|known| known == slug), "{task}: {slug}");
    }
}
