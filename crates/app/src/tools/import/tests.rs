//! Documents, good and hostile.

use serde_json::{Map, Value, json};
use turnpike_upstream::{ArgPlace, ArgStyle, BodyEncoding};

use super::*;
use crate::tools::{Effects, ToolEntry};

fn read(document: &Value) -> Import {
    import(document.to_string().as_bytes(), &ImportOptions::default()).unwrap()
}

/// A document with one operation.
fn document(path: &str, method: &str, operation: &Value, components: &Value) -> Value {
    json!({
        "openapi": "3.0.3", "info": { "title": "T", "version": "1" },
        "paths": { path: { method: operation } }, "components": components,
    })
}

fn one(path: &str, method: &str, operation: &Value, components: &Value) -> ToolDefinition {
    let found = read(&document(path, method, operation, components));
    assert_eq!(found.skipped, [], "{operation}");
    found.tools.into_iter().next().unwrap()
}

fn refusal(path: &str, method: &str, operation: &Value, components: &Value) -> String {
    let found = read(&document(path, method, operation, components));
    assert!(found.tools.is_empty(), "{operation}");
    found.skipped[0].reason.clone()
}

fn fits(tool: &ToolDefinition, args: &Value) -> bool {
    ToolEntry::new(tool.clone())
        .unwrap()
        .checked(args.clone())
        .is_ok()
}

/// An operation whose JSON body has this schema.
fn takes(schema: &Value) -> Value {
    json!({ "requestBody": { "required": true, "content": { "application/json": { "schema": schema } } } })
}

/// An operation with a parameter `a` of this schema.
fn asks(schema: &Value) -> Value {
    json!({ "parameters": [{ "name": "a", "in": "query", "schema": schema }] })
}

const YAML: &str = r##"
openapi: 3.1.0
info: { title: Library, version: 2 }
servers: [{ url: "https://{region}.example.com", variables: { region: { default: eu } } }]
paths:
  /books/{bookId}.json:
    parameters:
      - { name: bookId, in: path, required: true, schema: { type: string }, example: b1 }
    get:
      operationId: getBookById
      summary: Get a book
      description: "<p>Gives one book. And more.</p>"
      tags: [Books & More, all]
      parameters:
        - { name: "filter[year]", in: query, schema: { type: [integer, "null"] } }
        - { name: fields, in: query, explode: false, schema: { type: array, items: { type: string } } }
        - { name: X-Api-Key, in: header, required: true, schema: { type: string } }
        - { name: X-Trace, in: header, schema: { type: string } }
        - { name: theme, in: cookie, schema: { type: string } }
        - { name: key, in: query, schema: { type: string } }
      responses:
        200: { description: ok, content: { application/json: { schema: { $ref: "#/components/schemas/Book" } } } }
components:
  securitySchemes:
    key: { type: apiKey, in: query, name: key }
  schemas:
    Book:
      type: object
      properties:
        title: { type: string, examples: [Emma] }
        parts: { type: array, items: { $ref: "#/components/schemas/Book" } }
"##;

#[test]
fn a_yaml_document_becomes_tools() {
    let found = import(YAML.as_bytes(), &ImportOptions::default()).unwrap();
    assert_eq!(found.source.servers, ["https://eu.example.com"]);
    assert_eq!(
        (found.source.version.as_str(), found.source.title.as_str()),
        ("2", "Library")
    );
    assert_eq!(found.source.credentials, ["auth_query = \"key\""]);
    let tool = &found.tools[0];
    assert_eq!(
        (tool.name.as_str(), tool.title.as_str()),
        ("get-book-by-id", "Get a book")
    );
    assert_eq!(
        (tool.summary.as_str(), tool.effects),
        ("Gives one book.", Effects::Reads)
    );
    assert_eq!(
        (tool.category.as_deref(), tool.packs.len()),
        (Some("books-more"), 2)
    );
    // Who calls is no argument.
    let args: Vec<&String> = tool.schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(args, ["bookId", "filter_year", "fields", "X-Trace", "theme"]);
    assert_eq!(found.notes.len(), 2, "{:?}", found.notes);
    let http = tool.http.as_ref().unwrap();
    assert_eq!(http.path, "/books/{bookId}.json");
    assert_eq!(http.args["filter_year"].name.as_deref(), Some("filter[year]"));
    assert_eq!(http.args["fields"].style, ArgStyle::Comma);
    assert_eq!(http.args["theme"].place, ArgPlace::Cookie);
    assert!(fits(
        tool,
        &json!({"bookId": "a", "filter_year": null, "fields": ["x"]})
    ));
    assert!(!fits(tool, &json!({"bookId": "a", "key": "x"})) && !fits(tool, &json!({})));
    // What fits the schema, and not its place.
    assert!(
        !fits(tool, &json!({"bookId": ".."})) && !fits(tool, &json!({"bookId": "a", "X-Trace": "a\r\nb"}))
    );
    assert_eq!(tool.example_args, Some(json!({"bookId": "b1"})));
    assert_eq!(tool.example.as_ref().unwrap()["title"], "Emma");
    let output = tool.output_schema.as_ref().unwrap();
    assert_eq!(output["properties"]["parts"]["items"]["$ref"], "#/$defs/Book");
    assert!(
        jsonschema::validator_for(output)
            .unwrap()
            .is_valid(&json!({"parts": [{"title": "x"}]}))
    );
}

#[test]
fn version_three_point_zero_becomes_json_schema() {
    let components = json!({ "schemas": {
        "Pet": {
            "oneOf": [{ "$ref": "#/components/schemas/Cat" }, { "$ref": "#/components/schemas/Dog" }],
            "discriminator": { "propertyName": "kind", "mapping": { "cat": "#/components/schemas/Cat" } }
        },
        "Cat": { "type": "object", "properties": { "kind": { "type": "string" }, "lives": { "type": "integer" } } },
        "Dog": { "type": "object", "properties": { "kind": { "type": "string" } } },
        "Kind": { "type": "string", "enum": ["a", "b"] },
    } });
    let operation = takes(
        &json!({ "type": "object", "required": ["size", "id", "size"], "properties": {
        "id": { "type": "string", "readOnly": true },
        "size": { "type": "integer", "minimum": 0, "exclusiveMinimum": true, "example": 3 },
        "note": { "type": "string", "nullable": true },
        "kind": { "$ref": "#/components/schemas/Kind", "nullable": true },
        "level": { "enum": [1, 2], "type": "integer", "nullable": true },
        "pet": { "$ref": "#/components/schemas/Pet" },
        "odd": { "type": "file", "minLength": -1, "required": true, "enum": [], "x-y": 1, "xml": {} },
        "word": { "type": "string", "pattern": "[unclosed" }
    } }),
    );
    let tool = one("/x", "post", &operation, &components);
    assert_eq!(tool.schema["required"], json!(["size"]));
    let size = json!({"type": "integer", "exclusiveMinimum": 0, "examples": [3]});
    assert_eq!(tool.schema["properties"]["size"], size);
    assert_eq!(tool.schema["properties"]["odd"], json!({}));
    for (args, good) in [
        (json!({"size": 1}), true),
        (json!({"size": 0}), false),
        (json!({"size": 1, "id": "x"}), false),
        (
            json!({"size": 1, "note": null, "kind": null, "level": null}),
            true,
        ),
        (json!({"size": 1, "kind": "c"}), false),
        (json!({"size": 1, "pet": {"kind": "cat", "lives": 9}}), true),
        (json!({"size": 1, "pet": {"kind": "Dog"}}), true),
        (json!({"size": 1, "pet": {"kind": "bird"}}), false),
        (json!({"size": 1, "word": "anything"}), true),
    ] {
        assert_eq!(fits(&tool, &args), good, "{args}");
    }
    assert!(tool.http.unwrap().may_be_empty);
}

#[test]
fn bodies_are_merged_or_stand_as_one_argument() {
    let args = |path: &str, schema: Value| -> Vec<String> {
        let tool = one(path, "post", &takes(&schema), &json!({}));
        tool.schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    let object = json!({ "type": "object", "properties": { "id": {}, "b": {} } });
    assert_eq!(args("/x", object.clone()), ["id", "b"]);
    // `id` is in the path already.
    assert_eq!(args("/x/{id}", object.clone()), ["id", "body"]);
    let more = json!({ "allOf": [object, { "properties": { "c": {} } }] });
    assert_eq!(args("/x", more), ["id", "b", "c"]);
    for whole in [
        json!({ "type": "array", "items": { "type": "string" } }),
        json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        json!({ "properties": { "a": {} }, "anyOf": [{ "required": ["a"] }] }),
        json!({ "type": "object", "properties": { "a b": {}, "a_b": {} } }),
        json!(true),
    ] {
        assert_eq!(args("/x", whole), ["body"]);
    }
    let form = json!({ "requestBody": { "content": { "application/x-www-form-urlencoded": {
        "encoding": { "meta": { "style": "deepObject", "explode": true } },
        "schema": { "type": "object", "properties": { "meta": { "type": "object" }, "q": { "type": "string" } } }
    } } } });
    let http = one("/x", "post", &form, &json!({})).http.unwrap();
    assert_eq!(
        (http.encoding, http.args["meta"].style),
        (BodyEncoding::Form, ArgStyle::Deep)
    );
    let patch = json!({ "requestBody": { "content": { "application/merge-patch+json": { "schema": {} } } } });
    let http = one("/x", "patch", &patch, &json!({})).http.unwrap();
    assert_eq!(http.content_type.as_deref(), Some("application/merge-patch+json"));
}

#[test]
fn parameters_that_clash_get_names_that_say_where_they_go() {
    let operation = json!({ "parameters": [
        { "name": "id", "in": "query", "schema": { "type": "string" } },
        { "name": "id", "in": "path", "required": true, "schema": { "type": "string" } },
        { "name": "where", "in": "query", "content": { "application/json": { "schema": { "type": "object" } } } },
        { "name": "at", "in": "query", "style": "deepObject", "schema": { "type": "object" } },
        { "name": "gone", "in": "path", "required": true, "schema": {} },
        { "name": "Authorization", "in": "header", "schema": {} },
    ] });
    let tool = one("/things/{id}", "delete", &operation, &json!({}));
    assert_eq!(
        (tool.name.as_str(), tool.effects),
        ("delete-things-id", Effects::Destroys)
    );
    let http = tool.http.unwrap();
    let place = |arg: &str| {
        (
            http.args[arg].place,
            http.args[arg].name.as_deref(),
            http.args[arg].style,
        )
    };
    assert_eq!(http.args.len(), 4);
    assert_eq!(place("id"), (ArgPlace::Query, None, ArgStyle::Repeat));
    assert_eq!(place("path_id"), (ArgPlace::Path, Some("id"), ArgStyle::Comma));
    assert_eq!(place("where"), (ArgPlace::Query, None, ArgStyle::Json));
    assert_eq!(place("at"), (ArgPlace::Query, None, ArgStyle::Deep));
}

// Fault matrix 101, 104
#[test]
fn references_out_of_the_document_are_refused() {
    for reference in [
        "file:///etc/passwd",
        "http://169.254.169.254/x",
        "other.yaml#/A",
        "//evil.example/x",
        "../x.json",
    ] {
        let reason = refusal("/x", "get", &asks(&json!({ "$ref": reference })), &json!({}));
        assert!(
            reason.contains(reference) && reason.contains("not fetched"),
            "{reason}"
        );
    }
    let nested = json!({ "properties": { "b": { "items": { "$ref": "https://evil.example/s.json" } } } });
    let components = json!({ "schemas": { "A": nested } });
    let reason = refusal(
        "/x",
        "get",
        &asks(&json!({ "$ref": "#/components/schemas/A" })),
        &components,
    );
    assert!(reason.contains("https://evil.example/s.json"), "{reason}");
    let item = json!({ "openapi": "3.1.0", "paths": { "/x": { "$ref": "https://evil.example/p" } } });
    assert!(read(&item).skipped[0].reason.contains("not fetched"));
    let elsewhere = json!({ "openapi": "3.1.0", "servers": [{ "url": "https://a.example" }], "paths": { "/x": {
        "get": { "servers": [{ "url": "https://169.254.169.254" }] } } } });
    assert!(read(&elsewhere).skipped[0].reason.contains("unlike the rest"));
}

// Fault matrix 101
#[test]
fn what_cannot_be_a_tool_is_left_out_with_the_reason() {
    let answers = |kind: &str| json!({ "responses": { "200": { "content": { kind: {} } } } });
    let sends = |kind: &str| json!({ "requestBody": { "required": true, "content": { kind: {} } } });
    for (path, method, operation, says) in [
        ("/x", "post", sends("multipart/form-data"), "multipart"),
        ("/x", "post", sends("application/octet-stream"), "octet"),
        ("/x", "post", sends("application/xml"), "xml"),
        ("/x", "get", sends("application/json"), "GET with a body"),
        ("/x", "get", answers("application/pdf"), "pdf"),
        ("/x", "get", answers("text/event-stream"), "event-stream"),
        ("/x", "get", json!({ "responses": { "302": {} } }), "redirect"),
        ("/x", "get", json!({ "deprecated": true }), "deprecated"),
        ("/x", "head", json!({}), "HEAD"),
        ("/a/../b", "get", json!({}), "cannot be called"),
        ("/a#b", "get", json!({}), "cannot be called"),
        ("/a\\b", "get", json!({}), "cannot be called"),
        ("/a\r\nHost: x", "get", json!({}), "cannot be called"),
        ("/{a", "get", json!({}), "cannot be called"),
        ("/{{a}}", "get", json!({}), "cannot be called"),
        ("x", "get", json!({}), "cannot be called"),
        (
            "/x",
            "get",
            asks(&json!({ "$ref": "#/components/schemas/None" })),
            "not in the document",
        ),
        ("/x", "get", asks(&json!({ "$ref": "#" })), "not in the document"),
    ] {
        let reason = refusal(path, method, &operation, &json!({}));
        assert!(reason.contains(says), "{path} {reason}");
    }
    let hook = json!({ "openapi": "3.1.0", "webhooks": { "paid": { "post": {} } } });
    assert!(read(&hook).skipped[0].reason.contains("webhook"));
}

#[test]
fn recursion_is_kept_and_has_bounds() {
    let refer = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    let tree =
        json!({ "type": "object", "properties": { "kids": { "type": "array", "items": refer("Tree") } } });
    let tool = one(
        "/x",
        "post",
        &takes(&refer("Tree")),
        &json!({ "schemas": { "Tree": tree } }),
    );
    assert!(fits(&tool, &json!({"kids": [{"kids": [{}]}]})));
    assert!(!fits(&tool, &json!({"kids": [{"kids": 1}]})));
    let itself = json!({ "schemas": { "A": refer("B"), "B": refer("A") } });
    assert!(refusal("/x", "post", &takes(&refer("A")), &itself).contains("chain of references"));
    let mut deep = json!({ "type": "string" });
    for _ in 0..80 {
        deep = json!({ "not": deep });
    }
    assert!(refusal("/x", "get", &asks(&deep), &json!({})).contains("too deep"));
    // Every level refers twice to the next one: a tree of 2^40 leaves when it is written out.
    let mut levels = Map::new();
    for level in 0..40 {
        let next = refer(&format!("L{}", level + 1));
        let both = json!({ "type": "object", "properties": { "a": next, "b": next } });
        levels.insert(format!("L{level}"), both);
    }
    levels.insert("L40".to_owned(), json!({ "type": "string" }));
    let tool = one("/x", "get", &asks(&refer("L0")), &json!({ "schemas": levels }));
    assert!(fits(&tool, &json!({"a": {"a": {"b": {}}}})));
    let long = json!({ "type": "string", "description": "x".repeat(100) });
    let wide: Map<String, Value> = (0..20_000)
        .map(|index| (format!("p{index}"), long.clone()))
        .collect();
    let wide = asks(&json!({ "properties": wide }));
    assert!(refusal("/x", "get", &wide, &json!({})).contains("too large"));
}

#[test]
fn a_text_that_is_no_document_is_refused() {
    let level = |level: i32| {
        let ten = vec![format!("*a{}", level - 1); 10].join(", ");
        format!("a{level}: &a{level} [{ten}]\n")
    };
    let bomb = format!(
        "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n{}",
        (1..12).map(level).collect::<String>()
    );
    let deep = format!("openapi: {}{}", "[".repeat(5000), "]".repeat(5000));
    for text in [
        "",
        "{",
        "[1]",
        "null",
        "\u{0}",
        "swagger: '2.0'",
        "openapi: 2.0.0",
        "openapi: [3]",
        "{\"openapi\": true}",
        "openapi: 3.0.0\nx: *x",
        bomb.as_str(),
        deep.as_str(),
    ] {
        let shown: String = text.chars().take(40).collect();
        assert!(
            import(text.as_bytes(), &ImportOptions::default()).is_err(),
            "{shown}"
        );
    }
    assert!(import(&[0xff, 0xfe, 0x00], &ImportOptions::default()).is_err());
    let large = vec![b' '; MAX_DOCUMENT + 1];
    assert_eq!(
        import(&large, &ImportOptions::default()).unwrap_err(),
        ImportError::TooLarge
    );
    let empty = import("\u{feff}openapi: 3.1.0".as_bytes(), &ImportOptions::default()).unwrap();
    assert!(empty.tools.is_empty());
}

#[test]
fn names_are_slugs_and_unique() {
    for (text, expected) in [
        ("getPetById", "get-pet-by-id"),
        ("repos/get-content", "repos-get-content"),
        ("HTTPServerList", "http-server-list"),
        ("list_all.the things!", "list-all-the-things"),
        ("v2Get", "v2-get"),
        ("--x--", "x"),
        ("日本", ""),
    ] {
        assert_eq!(names::slug(text), expected);
    }
    assert!(names::slug(&"aB".repeat(100)).len() <= 64);
    let operation = |id: &str| json!({ "get": { "operationId": id } });
    let long = "x".repeat(80);
    let found = read(&json!({ "openapi": "3.0.0", "paths": {
        "/a": operation("same"), "/b": operation("Same"), "/c": operation(&long), "/d": operation(&long),
        "/日本": { "get": { "operationId": "日本" } } } }));
    let names: Vec<&str> = found.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names[..2], ["same", "same-2"]);
    assert!(names[3].ends_with("-2") && names[3].len() <= 64);
    assert_eq!(names[4], "get");
    assert_eq!(found.tools[4].http.as_ref().unwrap().path, "/%E6%97%A5%E6%9C%AC");
    assert!(names.iter().all(|name| crate::tools::is_slug(name)));
}

#[test]
fn patterns_match_parts_of_names() {
    for (pattern, text, expected) in [
        ("repos-*", "repos-get", true),
        ("repos-*", "xrepos-get", false),
        ("*-get", "repos-get", true),
        ("a*b*c", "a1b2c", true),
        ("a*b*c", "ac", false),
        ("ab*b", "ab", false),
        ("same", "same2", false),
        ("*", "", true),
    ] {
        assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
    }
    let only = |pattern: &str| ImportOptions {
        only: vec![pattern.to_owned()],
        deprecated: false,
    };
    assert_eq!(import(YAML.as_bytes(), &only("books*")).unwrap().tools.len(), 1);
    assert!(import(YAML.as_bytes(), &only("films")).unwrap().tools.is_empty());
}

#[test]
fn a_query_in_a_path_goes_along() {
    let operation = json!({ "parameters": [{ "name": "q", "in": "query", "required": true, "schema": {} }] });
    let tool = one("/search/{id}?beta=true&q={q}", "get", &operation, &json!({}));
    let http = tool.http.unwrap();
    assert_eq!(http.path, "/search/{id}?beta=true");
    let request = http.request(&json!({"id": "a?b", "q": "x&y"})).unwrap();
    assert_eq!(request.path, "/search/a%3Fb?beta=true");
    assert_eq!(request.query, "q=x%26y");
}
