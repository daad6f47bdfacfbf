//! One tool in full: its arguments, what it answers, what it costs, and whether the caller may execute it.

use serde::Serialize;
use serde_json::{Value, json};
use turnpike_core::ledger::Payer;
use turnpike_core::money::Micros;
use turnpike_core::pricing::{EffectiveMarkup, Explain, charge};

use super::access::ToolAccess;
use super::desk::{ToolCaller, ToolDesk, explain_call, price_of, tool_view};
use super::search::unknown_slug;
use crate::auth::ActorCredential;
use crate::error::AppError;
use crate::fields::Fields;
use crate::pricing::end_user_markup;
use crate::tools::ToolEntry;

/// Longest slug that is looked up, in characters.
const MAX_SLUG: usize = 256;
/// The members of an explanation that speak of the workspace's costs and margin, which its end users are not shown.
const OF_THE_WORKSPACE: [&str; 11] = [
    "markupBps",
    "markupSource",
    "flatSource",
    "overridden",
    "baseUsd",
    "baseCredits",
    "markupUsd",
    "flatMarkupUsd",
    "marginUsd",
    "marginCredits",
    "humanSummary",
];

/// Whether and how the caller may execute a tool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Access {
    enabled: bool,
    requires_approval: bool,
    /// Where a human approves, once that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_url: Option<String>,
}

impl ToolDesk {
    /// Describes the tool that a request's body names.
    ///
    /// # Errors
    /// `INVALID_JSON`, `UNKNOWN_FIELD`, `VALIDATION_ERROR`, `ENDPOINT_NOT_FOUND` with `suggestions`,
    /// `END_USER_NOT_FOUND`, `END_USER_RETIRED`.
    pub async fn describe(&self, caller: &ToolCaller, raw: &[u8]) -> Result<Value, AppError> {
        let mut fields = Fields::parse(raw, &["slug"])?;
        let slug = fields.required("slug", |fields, name| fields.words(name, 1..=MAX_SLUG))?;
        let found = slug
            .split_once('/')
            .and_then(|(provider, endpoint)| self.shelf.tool(provider, endpoint).ok());
        let Some((entry, tool)) = found else {
            return Err(unknown_slug(&self.searcher.index(), &slug));
        };
        let access = ToolAccess::of(&*self.store, caller).await?;
        Ok(json!({ "success": true, "tool": describe(caller, &access, entry.provider.id(), &tool) }))
    }
}

fn describe(caller: &ToolCaller, access: &ToolAccess<'_>, provider: &str, tool: &ToolEntry) -> Value {
    let definition = &tool.definition;
    let explain = explain_call(caller, provider, tool);
    let enabled = tool.price().is_ok() && access.allows(provider, &definition.name);
    let bound = explain.as_ref().and_then(|explain| bound(caller, tool, explain));
    let access = Access {
        enabled,
        requires_approval: tool.price().is_ok()
            && access.requires_approval(provider, &definition.name, bound),
        approval_url: None,
    };
    let mut view = tool_view(caller, provider, tool, explain.as_ref(), enabled, None);
    if let Some(members) = view.as_object_mut() {
        let example = json!({ "args": definition.example_args, "result": definition.example });
        for (name, value) in [
            ("description", json!(definition.description)),
            ("inputSchema", definition.schema.clone()),
            ("example", example),
            ("access", json!(access)),
            (
                "pricing",
                explain.map_or(Value::Null, |explain| pricing(caller, &explain)),
            ),
            ("revision", json!(tool.revision)),
        ] {
            members.insert(name.to_owned(), value);
        }
        if let Some(schema) = &definition.output_schema {
            members.insert("outputSchema".to_owned(), schema.clone());
        }
    }
    view
}

/// What a call is compared with to say whether it needs an approval: its price, that of one unit where the arguments
/// decide, or the most that the provider may quote.
fn bound(caller: &ToolCaller, tool: &ToolEntry, explain: &Explain) -> Option<Micros> {
    if explain.dynamic {
        let markup = match &caller.payer {
            Payer::Pool => EffectiveMarkup::NONE,
            Payer::EndUser(_) => end_user_markup(
                &caller.actor.tenant,
                caller.actor.key(),
                &explain.provider,
                &explain.slug,
            ),
        };
        let most = charge(tool.price().ok()?.ceiling()?, &markup).ok()?;
        return Some(most.effective);
    }
    let one_unit = match &caller.payer {
        Payer::Pool => explain.base_usd,
        Payer::EndUser(_) => explain.effective_usd,
    };
    price_of(caller, explain).map(|(usd, _)| usd).or(one_unit)
}

/// The explanation as the caller may see it.
fn pricing(caller: &ToolCaller, explain: &Explain) -> Value {
    let mut shown = json!(explain);
    let is_end_users = match &caller.actor.credential {
        ActorCredential::EndUser(_) => true,
        ActorCredential::Agent(_) => caller.payer != Payer::Pool,
        ActorCredential::Key(_) | ActorCredential::Member { .. } => false,
    };
    if let (true, Some(members)) = (is_end_users, shown.as_object_mut()) {
        members.retain(|name, _| !OF_THE_WORKSPACE.contains(&name.as_str()));
    }
    shown
}
