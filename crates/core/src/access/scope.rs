//! Scopes of keys and roles of members (decisions, section 3).

use crate::ledger::account::coded_enum;

coded_enum! {
    /// What a credential may do.
    Scope {
        /// Read the tenant's settings, balances, usage and events.
        TenantRead = 0 "tenant:read",
        /// Change the tenant's settings.
        TenantWrite = 1 "tenant:write",
        /// Change the catalogue and its prices.
        CatalogWrite = 2 "catalog:write",
        /// Allocate, deallocate, refund.
        CreditsMove = 3 "credits:move",
        /// Keys and webhook endpoints.
        CredentialsManage = 4 "credentials:manage",
        /// Mint end-user tokens, manage agent connections.
        TokensManage = 5 "tokens:manage",
        /// Payouts and payment connections.
        PayoutsManage = 6 "payouts:manage",
        /// Memberships.
        MembersManage = 7 "members:manage",
        /// Widget configuration and own balance.
        WidgetRead = 8 "widget:read",
    }
}

coded_enum! {
    /// A member's role in a workspace.
    Role {
        /// Everything.
        Owner = 0 "owner",
        /// Everything but removing the last owner, transferring ownership and closing the workspace.
        Admin = 1 "admin",
        /// Builds with it.
        Developer = 2 "developer",
        /// Money out.
        Billing = 3 "billing",
        /// Looks.
        Viewer = 4 "viewer",
    }
}

impl Role {
    /// The scopes a member of this role has.
    pub const fn scopes(self) -> &'static [Scope] {
        match self {
            Self::Owner | Self::Admin => Scope::ALL,
            Self::Developer => &[
                Scope::TenantRead,
                Scope::CatalogWrite,
                Scope::TokensManage,
                Scope::WidgetRead,
            ],
            Self::Billing => &[Scope::TenantRead, Scope::PayoutsManage],
            Self::Viewer => &[Scope::TenantRead],
        }
    }
}
