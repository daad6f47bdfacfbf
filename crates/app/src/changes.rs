//! Changes as use cases work them out, before they are rows of the audit log.

use serde_json::Value;
use turnpike_core::ids::TenantId;
use turnpike_store::AuditRow;

use crate::auth::Actor;
use crate::environment::Environment;

/// Who makes a change of a workspace, and from where.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    tenant: TenantId,
    name: String,
    origin: String,
}

impl Author {
    /// Whoever sent a request.
    pub(crate) fn of(actor: &Actor) -> Self {
        Self {
            tenant: actor.tenant.id,
            name: actor.label(),
            origin: actor.origin.to_string(),
        }
    }

    /// The operator.
    pub(crate) fn operator(tenant: TenantId, origin: &str) -> Self {
        Self::named(tenant, "operator", origin)
    }

    /// Whoever records call `name`.
    pub(crate) fn named(tenant: TenantId, name: &str, origin: &str) -> Self {
        Self {
            tenant,
            name: name.to_owned(),
            origin: origin.to_owned(),
        }
    }

    /// The workspace.
    pub(crate) const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// How records name it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The row of a change of `target`.
    pub(crate) fn row(
        &self,
        environment: &dyn Environment,
        action: &'static str,
        target: String,
    ) -> AuditRow {
        AuditRow {
            id: environment.new_id(),
            tenant: self.tenant,
            at: environment.now(),
            actor: self.name.clone(),
            action,
            target,
            before: None,
            after: None,
            origin: self.origin.clone(),
        }
    }
}

/// One change, whoever makes it.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    action: &'static str,
    target: String,
    before: Option<String>,
    after: Option<String>,
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
    pub(crate) fn before(mut self, before: &Value) -> Self {
        self.before = (!before.is_null()).then(|| before.to_string());
        self
    }

    /// What is now; null where nothing is.
    pub(crate) fn after(mut self, after: &Value) -> Self {
        self.after = (!after.is_null()).then(|| after.to_string());
        self
    }

    /// Its row of the audit log.
    pub(crate) fn row(self, environment: &dyn Environment, author: &Author) -> AuditRow {
        AuditRow {
            before: self.before,
            after: self.after,
            ..author.row(environment, self.action, self.target)
        }
    }
}
