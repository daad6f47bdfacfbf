//! The table of routes in words: for the OpenAPI document, for docs/authorisation.md, and as JSON.

use serde_json::{Value, json};
use turnpike_core::access::{AgentScope, Role, Scope};

use super::access::{Demand, Effect, Own, Rule};
use super::access_table::TABLE;

/// What a route demands, as a sentence; `None` where everybody may.
pub(super) fn access_in_words(rule: &Rule) -> Option<String> {
    let words = match rule.demand {
        Demand::Public => return None,
        Demand::Signed => "Needs the processor's signature instead of a credential.".to_owned(),
        Demand::Person => "Needs a dashboard session; the tenant header plays no part.".to_owned(),
        Demand::Caller => {
            let scope = agent_scope(rule);
            format!(
                "Needs a secret or sandbox key, whatever its scopes, an end user's token with the scope `spend`, or an \
                 agent connection with the scope `{scope}`."
            )
        }
        Demand::CallerOrMember => "Needs a secret or sandbox key, whatever its scopes, an end user's token with the scope \
                                   `spend`, an agent connection with the scope `mcp:read`, or a member with the scope \
                                   `tenant:read`."
            .to_owned(),
        Demand::EndUser(scope) => format!("Needs an end user's token with the scope `{}`.", scope.as_str()),
        Demand::Workspace(needs) => {
            let who = match (needs.keys, needs.administrator) {
                (true, _) => "a key or a member",
                (false, true) => "an owner or admin",
                (false, false) => "a member",
            };
            let factor = match (needs.step_up, needs.keys) {
                (false, _) => "",
                (true, true) => "; a member also a second factor of the last ten minutes, or a step-up token",
                (true, false) => " and a second factor of the last ten minutes, or a step-up token",
            };
            format!("Needs {who} with the scope `{}`{factor}.", needs.scope)
        }
        Demand::Shared(needs, own) => {
            let (who, scope) = own_in_words(own);
            format!(
                "Needs a key or a member with the scope `{}`, or {who} with the scope `{scope}`, for what is its own.",
                needs.scope
            )
        }
    };
    Some(words)
}

/// The scope that an agent connection needs where callers are let in.
fn agent_scope(rule: &Rule) -> AgentScope {
    if rule.effect == Effect::Read {
        AgentScope::Read
    } else {
        AgentScope::Execute
    }
}

const fn own_in_words(own: Own) -> (&'static str, &'static str) {
    match own {
        Own::EndUser(scope) => ("an end user's token", scope.as_str()),
        Own::Agent(scope) => ("an agent connection", scope.as_str()),
    }
}

/// The table as JSON, one object a route.
pub(crate) fn access_rows() -> Value {
    let row = |rule: &Rule| {
        let (demand, scope) = match rule.demand {
            Demand::Public => ("public", None),
            Demand::Signed => ("signed", None),
            Demand::Person => ("person", None),
            Demand::Caller => ("caller", None),
            Demand::CallerOrMember => ("callerOrMember", None),
            Demand::EndUser(scope) => ("endUser", Some(scope.as_str())),
            Demand::Workspace(needs) | Demand::Shared(needs, _) => ("workspace", Some(needs.scope.as_str())),
        };
        let own = match rule.demand {
            Demand::Shared(_, Own::EndUser(scope)) => Some(json!({ "endUser": scope.as_str() })),
            Demand::Shared(_, Own::Agent(scope)) => Some(json!({ "agent": scope.as_str() })),
            Demand::Caller | Demand::CallerOrMember => Some(json!({ "agent": agent_scope(rule).as_str() })),
            Demand::Public | Demand::Signed | Demand::Person | Demand::EndUser(_) | Demand::Workspace(_) => {
                None
            }
        };
        let needs = match rule.demand {
            Demand::Workspace(needs) | Demand::Shared(needs, _) => Some(needs),
            Demand::Public
            | Demand::Signed
            | Demand::Person
            | Demand::Caller
            | Demand::CallerOrMember
            | Demand::EndUser(_) => None,
        };
        json!({
            "method": rule.method, "path": rule.path, "demand": demand, "scope": scope,
            "keys": needs.is_some_and(|needs| needs.keys),
            "administrator": needs.is_some_and(|needs| needs.administrator),
            "stepUp": needs.is_some_and(|needs| needs.step_up),
            "effect": effect(rule.effect), "own": own,
        })
    };
    TABLE.iter().map(row).collect()
}

const fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Read => "read",
        Effect::Manage => "manage",
        Effect::Spend => "spend",
        Effect::TopUp => "top up",
        Effect::PayOut => "pay out",
    }
}

/// docs/authorisation.md.
pub(crate) fn access_markdown() -> String {
    let mut text = String::from(
        "# Authorisation\n\nGenerated by `turnpike authorisation-doc` from the table in \
         `crates/server/src/http/access_table.rs`, which is what the service enforces: a route that stands in no row \
         keeps it from starting.\n\n\
         ## Roles\n\n| role | scopes |\n|---|---|\n",
    );
    text.extend(Role::ALL.iter().map(|role| {
        let scopes: Vec<String> = role.scopes().iter().map(|scope| format!("`{scope}`")).collect();
        let all = if role.scopes() == Scope::ALL {
            "every scope".to_owned()
        } else {
            scopes.join(" ")
        };
        format!("| {role} | {all} |\n")
    }));
    text.push_str(
        "\nNobody removes the last owner, and only an owner makes another one. Nobody gives a role whose scopes they do not \
         have. A key has the scopes it was issued with; of the roles it gives and takes `developer` and `viewer` only.\n\n\
         ## Routes\n\n\
         *keys*: whether a key with the scope will do, too. *step-up*: a member must have shown a second factor in the \
         last ten minutes or send a step-up token. *owner/admin*: no other role will do.\n\n\
         Effect: *read* works in every state of the workspace, for its members also when it is closed; *manage* works while it is frozen; *spend*, *top up* and \
         *pay out* need an active workspace.\n\n\
         | route | who | scope | keys | step-up | owner/admin | effect |\n|---|---|---|---|---|---|---|\n",
    );
    for rule in TABLE {
        text.push_str(&line(rule));
    }
    text
}

fn line(rule: &Rule) -> String {
    let (who, scope, needs) = match rule.demand {
        Demand::Public => ("anybody", String::new(), None),
        Demand::Signed => ("the payment processor", String::new(), None),
        Demand::Person => ("a person", String::new(), None),
        Demand::Caller => (
            "secret or sandbox key; end user; agent connection",
            format!("`spend` of the token; `{}` of the connection", agent_scope(rule)),
            None,
        ),
        Demand::CallerOrMember => (
            "secret or sandbox key; end user; agent connection; member",
            "`spend` of the token; `mcp:read` of the connection; `tenant:read` of the member".to_owned(),
            None,
        ),
        Demand::EndUser(scope) => ("end user", format!("`{}` of the token", scope.as_str()), None),
        Demand::Workspace(needs) => ("member", format!("`{}`", needs.scope), Some(needs)),
        Demand::Shared(needs, Own::EndUser(scope)) => (
            "member; end user, of their own",
            format!("`{}`; `{}` of the token", needs.scope, scope.as_str()),
            Some(needs),
        ),
        Demand::Shared(needs, Own::Agent(scope)) => (
            "member; agent connection, of its own",
            format!("`{}`; `{scope}` of the connection", needs.scope),
            Some(needs),
        ),
    };
    let yes = |holds: Option<bool>| if holds == Some(true) { "yes" } else { "" };
    format!(
        "| `{} {}` | {who} | {scope} | {} | {} | {} | {} |\n",
        rule.method,
        rule.path,
        yes(needs.map(|needs| needs.keys)),
        yes(needs.map(|needs| needs.step_up)),
        yes(needs.map(|needs| needs.administrator)),
        effect(rule.effect),
    )
}
