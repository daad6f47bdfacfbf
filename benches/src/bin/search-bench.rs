//! How long a search of the tools takes, beside looking through their texts one by one.

#![allow(
    clippy::float_arithmetic,
    reason = "rates and percentiles are figures, never money"
)]

use std::hint::black_box;

use clap::Parser;
use serde_json::json;
use turnpike_app::tools::ToolDefinition;
use turnpike_app::tools::search::Index;
use turnpike_bench::clock::{monotonic_ns, thread_cpu_ns};
use turnpike_bench::figures::{Table, millis, percentile};
use turnpike_bench::process::Disturbance;
use turnpike_bench::{Result, machine};

/// The catalogue and the tasks of the retrieval tests.
const TOOLS: &str = include_str!("../../../crates/app/tests/retrieval/tools.txt");
const TASKS: &str = include_str!("../../../crates/app/tests/retrieval/tasks.txt");
/// Longest task that is accepted, in characters.
const LONGEST: usize = 1000;

#[derive(Parser)]
#[command(about = "Searches of tools, beside a linear scan of their texts")]
struct Options {
    /// Tools in the catalogue.
    #[arg(long, default_value_t = 5000)]
    tools: usize,
    /// Searches of each kind.
    #[arg(long, default_value_t = 20_000)]
    searches: usize,
    /// One short round: shows that it works, not how fast.
    #[arg(long)]
    quick: bool,
}

/// So many tools: those of the retrieval tests again and again, each time of other providers and with more to say.
fn catalogue(many: usize) -> Vec<(String, ToolDefinition)> {
    let lines: Vec<Vec<&str>> = TOOLS
        .lines()
        .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>())
        .filter(|parts| parts.len() == 5)
        .collect();
    (0..many)
        .filter_map(|number| {
            let parts = lines.get(number % lines.len())?;
            let more = lines.get((number * 7 + number / lines.len()) % lines.len())?;
            let [slug, title, packs, summary, parameters] = parts.as_slice() else {
                return None;
            };
            let (provider, name) = slug.split_once('/')?;
            let tool = ToolDefinition {
                name: (*name).to_owned(),
                title: (*title).to_owned(),
                summary: (*summary).to_owned(),
                description: format!("Variant v{number}. {} Beside {}.", more.get(3)?, more.get(1)?),
                packs: packs.split(',').map(str::to_owned).collect(),
                schema: json!({ "properties": { "args": { "description": parameters } } }),
                ..ToolDefinition::default()
            };
            Some((format!("{provider}-{}", number / lines.len()), tool))
        })
        .collect()
}

/// What every word of a task has to be looked for in, without an index.
fn texts(tools: &[(String, ToolDefinition)]) -> Vec<String> {
    let text = |(provider, tool): &(String, ToolDefinition)| {
        format!(
            "{provider} {} {} {} {} {}",
            tool.name, tool.title, tool.summary, tool.description, tool.schema
        )
        .to_lowercase()
    };
    tools.iter().map(text).collect()
}

fn scan(texts: &[String], task: &str) -> Option<usize> {
    let task = task.to_lowercase();
    let words: Vec<&str> = task.split_whitespace().collect();
    let matches = |text: &String| words.iter().filter(|word| text.contains(**word)).count();
    let mut ranked: Vec<(usize, usize)> = texts.iter().map(matches).zip(0..).collect();
    ranked.sort_unstable_by(|one, other| other.cmp(one));
    ranked.first().map(|(_, tool)| *tool)
}

/// Nanoseconds of each of many runs, ascending: on the wall, and of this thread alone.
struct Samples {
    wall: Vec<u64>,
    own: Vec<u64>,
}

fn measure<T>(tasks: &[String], many: usize, mut run: impl FnMut(&str) -> T) -> Samples {
    let (mut wall, mut own): (Vec<u64>, Vec<u64>) = tasks
        .iter()
        .cycle()
        .take(many)
        .map(|task| {
            let begun = (monotonic_ns(), thread_cpu_ns());
            black_box(run(black_box(task)));
            (monotonic_ns() - begun.0, thread_cpu_ns() - begun.1)
        })
        .unzip();
    wall.sort_unstable();
    own.sort_unstable();
    Samples { wall, own }
}

/// A task with its letters in the wrong order, word by word.
fn misspelt(task: &str) -> String {
    let slip = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        let middle = letters.len() / 2;
        if letters.len() >= 5 {
            letters.swap(middle - 1, middle);
        }
        letters.into_iter().collect::<String>()
    };
    task.split_whitespace().map(slip).collect::<Vec<_>>().join(" ")
}

fn main() -> Result<()> {
    let options = Options::parse();
    let many = if options.quick { 200 } else { options.searches };
    println!("{}", machine::describe());
    let tools = catalogue(options.tools);
    let begun = monotonic_ns();
    let index = Index::new(tools.iter().map(|(provider, tool)| (provider.as_str(), tool)));
    let built = monotonic_ns() - begun;
    println!(
        "{} tools; the index is built in {:.0} ms",
        index.len(),
        millis(built)
    );
    let texts = texts(&tools);
    let tasks: Vec<String> = TASKS
        .lines()
        .filter_map(|line| line.split('|').next())
        .map(|task| task.trim().to_owned())
        .collect();
    let slips: Vec<String> = tasks.iter().map(|task| misspelt(task)).collect();
    let long: String = tasks.join(" ");
    let long: Vec<String> = (0..tasks.len())
        .map(|from| long.chars().skip(from * 40).take(LONGEST).collect())
        .collect();
    let disturbance = Disturbance::begin(vec![std::process::id()])?;
    let scanned = measure(&tasks, (many / 20).max(50), |task| scan(&texts, task));
    let floor = percentile(&scanned.own, 50.0).max(1);
    let head = [
        "",
        "p50 ms",
        "p99 ms",
        "worst ms",
        "p50 ms of CPU",
        "p99 ms of CPU",
        "CPU of the scan's p50",
    ];
    let mut table = Table::new(&head);
    let mut row = |name: &str, samples: &Samples| {
        let at = |samples: &[u64], p: f64| format!("{:.3}", millis(percentile(samples, p)));
        table.row(&[
            name.to_owned(),
            at(&samples.wall, 50.0),
            at(&samples.wall, 99.0),
            at(&samples.wall, 100.0),
            at(&samples.own, 50.0),
            at(&samples.own, 99.0),
            format!("{:.3}", millis(percentile(&samples.own, 50.0)) / millis(floor)),
        ]);
    };
    row("linear scan of the texts", &scanned);
    row(
        "a sentence",
        &measure(&tasks, many, |task| index.search(task).len()),
    );
    row(
        "a misspelt sentence",
        &measure(&slips, many, |task| index.search(task).len()),
    );
    row(
        "a thousand characters",
        &measure(&long, many, |task| index.search(task).len()),
    );
    table.print(&format!("Searches of {} tools, one at a time", index.len()));
    println!("{}", disturbance.tell()?);
    Ok(())
}
