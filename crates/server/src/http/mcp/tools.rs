//! The tools of the MCP server: their names, what they take, and what an agent reads of them.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;

/// What an agent reads before its first call.
pub(super) const INSTRUCTIONS: &str = "Paid tools behind one balance. 1. `search` with the task in words. 2. `describe` \
     the slug you chose, to learn its arguments and its price. 3. `estimate` when the price matters: it gives a quote for \
     exactly these arguments, and a token that holds the price. 4. `execute` with an idempotency key of your own; send \
     the same key and arguments again when you do not know whether a call went through: it is charged once. Searching, \
     describing and estimating are free.";

/// A tool of the MCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentTool {
    /// Finds tools.
    Search,
    /// Tells what a tool takes and costs.
    Describe,
    /// Quotes a call.
    Estimate,
    /// Calls a tool.
    Execute,
    /// Reads the result of a call again, a part at a time.
    GetResult,
    /// Tells what can be spent.
    GetBalance,
}

impl AgentTool {
    pub(super) const ALL: [Self; 6] = [
        Self::Search,
        Self::Describe,
        Self::Estimate,
        Self::Execute,
        Self::GetResult,
        Self::GetBalance,
    ];

    /// The tool of that name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Describe => "describe",
            Self::Estimate => "estimate",
            Self::Execute => "execute",
            Self::GetResult => "get_result",
            Self::GetBalance => "get_balance",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Search => "Find tools",
            Self::Describe => "Describe a tool",
            Self::Estimate => "Quote a call",
            Self::Execute => "Call a tool",
            Self::GetResult => "Read a result",
            Self::GetBalance => "Show the balance",
        }
    }

    /// One sentence, for the documentation.
    pub(super) const fn description(self) -> &'static str {
        match self {
            Self::Search => {
                "Finds tools for a task that is said in words, or those of a category or pack. Free."
            }
            Self::Describe => {
                "Tells what a tool takes (JSON Schema), what it answers, what it costs and whether it may be called. Free."
            }
            Self::Estimate => {
                "Quotes a call with exactly these arguments, without making it; the approval token in the answer holds \
                 the price for `execute`. Free."
            }
            Self::Execute => {
                "Calls a tool and pays for it from the balance. Choose a new idempotency key for each new intent, and \
                 send the same key again to repeat: a repeat is never charged."
            }
            Self::GetResult => "Reads the stored result of a call, a part at a time. Free.",
            Self::GetBalance => "Tells how many credits are there to spend. Free.",
        }
    }

    fn input(self) -> Value {
        let slug = json!({
            "type": "string", "pattern": "^[a-z0-9][a-z0-9-]*/[a-z0-9][a-z0-9-]*$", "maxLength": 200,
            "description": "The tool: provider/endpoint, as search shows it"
        });
        let args = json!({ "type": "object", "description": "The tool's arguments, as describe shows them" });
        match self {
            Self::Search => json!({
                "type": "object", "additionalProperties": false,
                "properties": {
                    "query": { "type": "string", "maxLength": 1000, "description": "The task, in words" },
                    "category": { "type": "string", "description": "Only tools of this category" },
                    "pack": { "type": "string", "description": "Only tools of this pack" },
                    "enabled": { "type": "boolean", "description": "Only tools that may be called, or may not" },
                    "limit": { "type": "integer", "minimum": 1, "maximum": 50, "default": 10 },
                    "cursor": { "type": "string", "description": "next_cursor of the page before" }
                }
            }),
            Self::Describe => json!({
                "type": "object", "additionalProperties": false, "properties": { "slug": slug }, "required": ["slug"]
            }),
            Self::Estimate => json!({
                "type": "object", "additionalProperties": false,
                "properties": {
                    "slug": slug, "args": args,
                    "expiresInSeconds": { "type": "integer", "minimum": 30, "maximum": 600, "default": 120 },
                    "maxChargeCredits": { "type": "string", "description": "The most that the call may cost" }
                },
                "required": ["slug", "args"]
            }),
            Self::Execute => json!({
                "type": "object", "additionalProperties": false,
                "properties": {
                    "slug": slug, "args": args,
                    "idempotencyKey": {
                        "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$",
                        "description": "Of your own, new for each new intent; the same for a repeat"
                    },
                    "approvalToken": { "type": "string", "description": "Of an estimate for the same arguments" }
                },
                "required": ["slug", "args", "idempotencyKey"]
            }),
            Self::GetResult => json!({
                "type": "object", "additionalProperties": false,
                "properties": {
                    "callId": { "type": "string", "format": "uuid" },
                    "offset": { "type": "integer", "minimum": 0, "default": 0, "description": "In bytes" },
                    "limit": { "type": "integer", "minimum": 1, "maximum": 65536, "default": 65536, "description": "In bytes" }
                },
                "required": ["callId"]
            }),
            Self::GetBalance => json!({ "type": "object", "additionalProperties": false, "properties": {} }),
        }
    }

    /// As it is listed.
    pub(super) fn listed(self) -> Tool {
        let input: JsonObject = match self.input() {
            Value::Object(members) => members,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                JsonObject::new()
            }
        };
        let spends = self == Self::Execute;
        let annotations = ToolAnnotations::with_title(self.title())
            .read_only(!spends)
            .destructive(spends)
            .idempotent(true)
            .open_world(spends);
        let mut tool = Tool::new(self.name(), self.description(), Arc::new(input)).annotate(annotations);
        tool.title = Some(self.title().to_owned());
        tool
    }
}

/// What an agent can do about errors.
const HINTS: [(&[ErrorCode], &str); 9] = [
    (
        &[
            ErrorCode::ValidationError,
            ErrorCode::UnknownField,
            ErrorCode::InvalidJson,
        ],
        "Call `describe` for the slug, correct the arguments that `details` names, and send it again.",
    ),
    (
        &[ErrorCode::EndpointNotFound],
        "Call `search` with the task in words and use a slug that it shows.",
    ),
    (
        &[ErrorCode::EndpointDisabled, ErrorCode::PolicyDenied],
        "This tool is not enabled for you: search for another one, or ask a person to enable it.",
    ),
    (
        &[ErrorCode::InsufficientCredits],
        "Tell the person that credits have to be added; nothing was charged.",
    ),
    (
        &[ErrorCode::ApprovalRequired],
        "Show the approvalUrl to a person, and send the same call with the same key once it is approved.",
    ),
    (
        &[ErrorCode::IdempotencyKeyConflict],
        "The key was used for other arguments: choose a new one for a new intent.",
    ),
    (
        &[ErrorCode::IdempotencyInProgress, ErrorCode::RateLimited],
        "Wait for `retryAfterSeconds`, then send the same call with the same key again.",
    ),
    (
        &[ErrorCode::QuoteReapprovalRequired],
        "The quote does not hold any more: call `estimate` again and decide anew.",
    ),
    (
        &[ErrorCode::UpstreamError, ErrorCode::UpstreamTimeout],
        "The provider failed and nothing was charged: try another tool, or later with a new key.",
    ),
];

/// What an agent can do about an error.
pub(super) fn hint(code: ErrorCode) -> Option<&'static str> {
    let found = HINTS.iter().find(|(codes, _)| codes.contains(&code));
    found.map(|(_, hint)| *hint)
}
