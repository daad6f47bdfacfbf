//! Changes of a workspace as the audit log tells them: who made them, what was before and what is now.

use serde_json::Value;
use turnpike_core::ids::TenantId;
use turnpike_store::AuditRow;

use crate::auth::Actor;
use crate::environment::Environment;

/// Who makes a change, and from where.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    name: String,
    origin: String,
}

impl Author {
    /// Whoever sent a request.
    pub(crate) fn of(actor: &Actor) -> Self {
        Self {
            name: actor.label(),
            origin: actor.origin.to_string(),
        }
    }

    /// The operator.
    pub(crate) fn operator(origin: &str) -> Self {
        Self {
            name: "operator".to_owned(),
            origin: origin.to_owned(),
        }
    }

    /// How records name it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// One change.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    action: &'static str,
    target: String,
    before: Option<Value>,
    after: Option<Value>,
}

impl Change {
    pub(crate) fn new(action: &'static str, target: &impl ToString) -> Self {
        Self {
            action,
            target: target.to_string(),
            before: None,
            after: None,
        }
    }

    /// What was before; null where nothing was.
    pub(crate) fn before(mut self, before: Value) -> Self {
        self.before = Some(before).filter(|before| !before.is_null());
        self
    }

    /// What is now; null where nothing is.
    pub(crate) fn after(mut self, after: Value) -> Self {
        self.after = Some(after).filter(|after| !after.is_null());
        self
    }

    /// Its row of the audit log.
    pub(crate) fn row(self, environment: &dyn Environment, tenant: TenantId, author: &Author) -> AuditRow {
        AuditRow {
            id: environment.new_id(),
            tenant,
            at: environment.now(),
            actor: author.name.clone(),
            action: self.action,
            target: self.target,
            before: self.before.map(|before| before.to_string()),
            after: self.after.map(|after| after.to_string()),
            origin: author.origin.clone(),
        }
    }
}
