//! What no compiler checks: the shape of the repository, as ARCHITECTURE.md promises it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what went wrong by panicking"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use turnpike_core::errors::ErrorCode;

/// The crates, each with those it may use.
const CRATES: [(&str, &[&str]); 5] = [
    ("core", &[]),
    ("store", &["core"]),
    ("upstream", &["core"]),
    ("app", &["core", "store", "upstream"]),
    ("server", &["core", "store", "upstream", "app"]),
];
/// Where nothing of ours lies.
const SKIPPED: [&str; 6] = [
    ".git",
    "target",
    ".turnpike",
    "node_modules",
    "__pycache__",
    ".hypothesis",
];
const LONGEST_FILE: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// The text files of the repository, as (path from the root, content), sorted.
fn files() -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let kind = entry.file_type().unwrap();
            if SKIPPED.contains(&name.as_str()) || kind.is_symlink() {
                continue;
            }
            if kind.is_dir() {
                folders.push(entry.path());
            } else if let Ok(text) = std::fs::read_to_string(entry.path()) {
                let path = entry.path();
                let path = path.strip_prefix(&root).unwrap().to_str().unwrap();
                found.push((path.to_owned(), text));
            }
        }
    }
    found.sort();
    assert!(
        found.len() > 50,
        "the repository was not found at {}",
        root.display()
    );
    found
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn is_rust(path: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|extension| extension == "rs")
}

/// The sources of a crate, without its tests.
fn sources(name: &str) -> Vec<(String, String)> {
    let prefix = format!("crates/{name}/src/");
    let all = files().into_iter();
    all.filter(|(path, _)| path.starts_with(&prefix) && is_rust(path))
        .collect()
}

/// `path:line: text` of every line that `wrong` objects to.
fn lines(files: &[(String, String)], wrong: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files {
        for (index, line) in text.lines().enumerate() {
            if wrong(line) {
                found.push(format!("{path}:{}: {}", index + 1, line.trim()));
            }
        }
    }
    found
}

fn none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

/// What a crate depends on itself; its tests may use more.
fn dependencies(name: &str) -> BTreeSet<String> {
    dependencies_of(name, &["dependencies", "build-dependencies"])
}

fn dependencies_of(name: &str, sections: &[&str]) -> BTreeSet<String> {
    let manifest: toml::Table = read(&format!("crates/{name}/Cargo.toml")).parse().unwrap();
    sections
        .iter()
        .filter_map(|section| manifest.get(*section)?.as_table())
        .flat_map(|section| section.keys().cloned())
        .collect()
}

#[test]
fn there_are_five_crates_and_the_architecture_names_them() {
    let present: BTreeSet<String> = std::fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let expected: BTreeSet<String> = CRATES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(present, expected);
    let architecture = read("ARCHITECTURE.md");
    for name in expected {
        assert!(
            architecture.contains(&format!("crates/{name}")) || architecture.contains(&format!("{name}/")),
            "ARCHITECTURE.md does not name crates/{name}"
        );
    }
}

#[test]
fn dependencies_point_one_way() {
    for (name, allowed) in CRATES {
        let wrong: Vec<String> =
            dependencies_of(name, &["dependencies", "dev-dependencies", "build-dependencies"])
                .into_iter()
                .filter(|dependency| {
                    dependency
                        .strip_prefix("turnpike-")
                        .is_some_and(|other| !allowed.contains(&other))
                })
                .collect();
        none(&format!("crates/{name} must not depend on"), &wrong);
    }
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<String> = files()
        .into_iter()
        .filter(|(path, text)| is_rust(path) && text.lines().count() > LONGEST_FILE)
        .map(|(path, text)| format!("{path}: {} lines", text.lines().count()))
        .collect();
    none("files of more than 800 lines", &long);
}

#[test]
fn every_module_says_what_it_is() {
    let silent: Vec<String> = CRATES
        .iter()
        .flat_map(|(name, _)| sources(name))
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(path, _)| path)
        .collect();
    none("modules that do not begin with `//!`", &silent);
}

#[test]
fn only_the_store_speaks_sql() {
    for name in ["core", "upstream", "app", "server"] {
        let queries = lines(&sources(name), |line| {
            [
                "SELECT ",
                "INSERT INTO ",
                "UPDATE ",
                "DELETE FROM ",
                "CREATE TABLE ",
            ]
            .iter()
            .any(|verb| line.contains(&format!("\"{verb}")) || line.trim_start().starts_with(verb))
        });
        none(&format!("SQL in crates/{name}"), &queries);
        for driver in ["rusqlite", "tokio-postgres", "deadpool-postgres"] {
            let found = dependencies(name);
            assert!(!found.contains(driver), "crates/{name} depends on {driver}");
        }
    }
}

#[test]
fn only_the_server_knows_the_web_framework() {
    for name in ["core", "store", "upstream", "app"] {
        let found = dependencies(name);
        assert!(!found.contains("axum"), "crates/{name} depends on axum");
        let used = lines(&sources(name), |line| line.contains("axum::"));
        none(&format!("axum in crates/{name}"), &used);
    }
}

#[test]
fn only_upstream_calls_out() {
    for name in ["core", "store", "app", "server"] {
        let found = dependencies(name);
        for client in ["reqwest", "hyper-rustls"] {
            assert!(!found.contains(client), "crates/{name} depends on {client}");
        }
        let used = lines(&sources(name), |line| {
            ["reqwest", "hyper::client", "hyper_util::client"]
                .iter()
                .any(|client| line.contains(client))
        });
        none(&format!("an HTTP client in crates/{name}"), &used);
    }
}

#[test]
fn nothing_is_left_for_later() {
    // Written in halves, so that this file does not object to itself.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("unimplemented", "!"),
        concat!("to", "do!"),
    ];
    let files = files();
    none(
        "left for later",
        &lines(&files, |line| words.iter().any(|word| line.contains(word))),
    );
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    let files = files();
    let folders = ["home", "root", "work", "Users"].map(|folder| format!("/{folder}/"));
    let paths = lines(&files, |line| {
        folders.iter().any(|folder| {
            line.match_indices(folder.as_str()).any(|(at, _)| {
                // The beginning of a path, not the middle of one or of an address.
                let before = line.get(..at).and_then(|text| text.chars().next_back());
                before.is_none_or(|before| before.is_whitespace() || "\"'`(=:<".contains(before))
            })
        })
    });
    none("absolute paths", &paths);
    let hosts = [
        concat!("registry.", "npmjs"),
        concat!("files.", "pythonhosted"),
        concat!("index.", "crates.io"),
        concat!("static.", "crates.io"),
        concat!("proxy.", "golang"),
        concat!("artifact", "ory"),
    ];
    let named = lines(&files, |line| hosts.iter().any(|host| line.contains(host)));
    none("hosts of package registries", &named);
    let lock = [("Cargo.lock".to_owned(), read("Cargo.lock"))];
    let sources = lines(&lock, |line| {
        line.starts_with("source = ")
            && line != r#"source = "registry+https://github.com/rust-lang/crates.io-index""#
    });
    none("dependencies that are not from crates.io", &sources);
}

#[test]
fn both_databases_have_the_same_migrations() {
    let names = |folder: &str| -> BTreeSet<String> {
        std::fs::read_dir(root().join("migrations").join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    let (sqlite, postgres) = (names("sqlite"), names("postgres"));
    assert!(!sqlite.is_empty());
    assert_eq!(sqlite, postgres);
}

#[test]
fn the_default_configuration_is_toml() {
    for file in ["config.default.toml", "config.demo.toml"] {
        let parsed: Result<toml::Table, _> = read(file).parse();
        assert!(parsed.is_ok(), "{file}: {parsed:?}");
    }
}

#[test]
fn every_error_code_is_documented() {
    let document = read("docs/errors.md");
    let missing: Vec<String> = ErrorCode::ALL
        .iter()
        .map(|code| code.as_str().to_owned())
        .filter(|code| !document.contains(&format!("`{code}`")))
        .collect();
    none("docs/errors.md lacks", &missing);
}

#[test]
fn the_scripts_can_be_run() {
    use std::os::unix::fs::PermissionsExt as _;
    for script in [
        ".ci/run",
        "scripts/test",
        "scripts/test-llama",
        "scripts/postgres-for-tests",
        "tests/clients/run",
    ] {
        let mode = std::fs::metadata(root().join(script)).map(|found| found.permissions().mode());
        assert!(
            mode.as_ref().is_ok_and(|mode| mode & 0o111 != 0),
            "{script} is not an executable file: {mode:?}"
        );
    }
}
