//! Accounts and who spends from them.
//!
//! `posted` is the settled balance (credits minus debits), `held` what open holds set aside. An account
//! that customers spend from never has `posted − held < 0`; the others are counterparts and may be negative.

use std::fmt;

use uuid::Uuid;

use crate::ids::{ExternalUserId, TenantId, derive_v8};
use crate::money::Micros;

macro_rules! coded_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// Every variant, in the order of the codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The number the store keeps.
            pub const fn code(self) -> i16 {
                match self { $(Self::$variant => $code),+ }
            }

            /// The variant of a stored number.
            pub const fn from_code(code: i16) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }

            /// The name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// The variant of a name on the wire.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|variant| variant.as_str() == text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::parse(&text).ok_or_else(|| {
                    let known: Vec<&str> = Self::ALL.iter().map(|variant| variant.as_str()).collect();
                    serde::de::Error::custom(format!("must be one of {}", known.join(", ")))
                })
            }
        }
    };
}
pub(crate) use coded_enum;

coded_enum! {
    /// What an account is for.
    AccountKind {
        /// The tenant's own prepaid balance.
        Pool = 0 "pool",
        /// One end user's prepaid balance.
        EndUser = 1 "end_user",
        /// Margin owed to the tenant.
        Margin = 2 "margin",
        /// What calls cost at the providers.
        ProviderCost = 3 "provider_cost",
        /// Clearing with whoever brought the money in.
        Funding = 4 "funding",
        /// Credits given away: promotions and volume bonuses.
        Bonus = 5 "bonus",
        /// Fees of the payment processor.
        Fees = 6 "fees",
        /// What the tenant owes after a refund of spent credits.
        Receivable = 7 "receivable",
        /// What the operator lost: work of a provider that nobody pays for.
        OperatorLoss = 8 "operator_loss",
        /// Clearing with the tenant: margin that was paid out, or is on its way.
        Payouts = 9 "payouts",
        /// One wallet that pays for its calls by itself: what it has authorised for open calls, and what it has paid.
        Payer = 10 "payer",
    }
}

coded_enum! {
    /// Whether an account may be spent from.
    AccountStatus {
        /// In use.
        Active = 0 "active",
        /// Stopped: no spending.
        Frozen = 1 "frozen",
        /// Its end user was retired for good.
        Retired = 2 "retired",
    }
}

coded_enum! {
    /// A workspace's state (decisions, section 10).
    TenantStatus {
        /// In use.
        Active = 0 "active",
        /// Reads only.
        Suspended = 1 "suspended",
        /// Stopped for risk: no spending, no payouts.
        Frozen = 2 "frozen",
        /// Gone.
        Closed = 3 "closed",
    }
}

/// Whose balance pays for a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Payer {
    /// The tenant's pool.
    Pool,
    /// One end user.
    EndUser(ExternalUserId),
}

impl Payer {
    /// The payer's account.
    pub fn account(&self, tenant: TenantId) -> AccountKey {
        match self {
            Self::Pool => AccountKey::of(tenant, AccountKind::Pool),
            Self::EndUser(id) => AccountKey {
                tenant,
                kind: AccountKind::EndUser,
                owner: Some(id.clone()),
            },
        }
    }

    /// The end user's id, if it is one.
    pub const fn external_user_id(&self) -> Option<&ExternalUserId> {
        match self {
            Self::Pool => None,
            Self::EndUser(id) => Some(id),
        }
    }

    /// The stored form: the end user's id, empty for the pool.
    pub fn as_owner(&self) -> &str {
        self.external_user_id().map_or("", ExternalUserId::as_str)
    }
}

/// Names one account: its tenant, its kind, and for [`AccountKind::EndUser`] and [`AccountKind::Payer`] whose it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountKey {
    /// The workspace.
    pub tenant: TenantId,
    /// What it is for.
    pub kind: AccountKind,
    /// The end user, or the wallet's address.
    pub owner: Option<ExternalUserId>,
}

impl AccountKey {
    /// The tenant's only account of `kind`.
    pub const fn of(tenant: TenantId, kind: AccountKind) -> Self {
        Self {
            tenant,
            kind,
            owner: None,
        }
    }

    /// The stored form of the owner, empty where there is none.
    pub fn owner_str(&self) -> &str {
        self.owner.as_ref().map_or("", ExternalUserId::as_str)
    }

    /// The account's public id, stable for good.
    pub fn id(&self) -> Uuid {
        derive_v8(&[
            b"account",
            self.tenant.0.as_bytes(),
            self.kind.as_str().as_bytes(),
            self.owner_str().as_bytes(),
        ])
    }

    /// Whether customers spend from it, so that it can never be overdrawn.
    pub const fn is_spendable(&self) -> bool {
        matches!(self.kind, AccountKind::Pool | AccountKind::EndUser)
    }
}

impl fmt::Display for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Some(owner) => write!(f, "{}:{owner}", self.kind),
            None => write!(f, "{}", self.kind),
        }
    }
}

/// An account's balances, and what was spent from it in the running day and month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Settled balance.
    pub posted: Micros,
    /// Set aside by open holds.
    pub held: Micros,
    /// Whether it may be spent from.
    pub status: AccountStatus,
    /// Why it is frozen, counted: each dispute, each debt, and by hand. Freeing by hand forgives them all: above
    /// 2³² it counts how often that was done, so that what was forgiven cannot end a later freeze.
    pub freezes: i64,
    /// Calls paid from it that are not finished, running streams included.
    pub open_calls: i64,
    /// Spent and held in the running UTC day.
    pub day: SpendWindow,
    /// Spent and held in the running UTC month.
    pub month: SpendWindow,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            posted: Micros::ZERO,
            held: Micros::ZERO,
            status: AccountStatus::Active,
            freezes: 0,
            open_calls: 0,
            day: SpendWindow::default(),
            month: SpendWindow::default(),
        }
    }
}

/// One step of the upper half of [`Account::freezes`].
const FORGIVEN: i64 = 1 << 32;

impl Account {
    /// Reasons to be frozen that were not forgiven.
    pub const fn reasons(&self) -> i64 {
        self.freezes.rem_euclid(FORGIVEN)
    }

    /// How often its reasons were forgiven: a reason belongs to the spell in which it arose.
    pub const fn spell(&self) -> i64 {
        self.freezes.div_euclid(FORGIVEN)
    }

    /// Adds a reason to be frozen; says whether it was not frozen before.
    pub(super) fn freeze(&mut self) -> bool {
        self.freezes = self.freezes.saturating_add(1);
        let was_active = self.status == AccountStatus::Active;
        if was_active {
            self.status = AccountStatus::Frozen;
        }
        was_active
    }

    /// Takes a reason of `spell` away; without one the account may be spent from again.
    pub(super) fn thaw(&mut self, spell: i64) {
        if spell != self.spell() || self.reasons() == 0 {
            return;
        }
        self.freezes = self.freezes.saturating_sub(1);
        if self.reasons() == 0 && self.status == AccountStatus::Frozen {
            self.status = AccountStatus::Active;
        }
    }

    /// Forgives every reason there is.
    pub(super) fn forgive(&mut self) {
        self.freezes = self.spell().saturating_add(1).saturating_mul(FORGIVEN);
        if self.status == AccountStatus::Frozen {
            self.status = AccountStatus::Active;
        }
    }

    /// What a new hold may take.
    pub const fn available(&self) -> Micros {
        self.posted.saturating_sub_zero(self.held)
    }

    /// The three figures shown to people.
    pub const fn balance(&self) -> Balance {
        Balance {
            posted: self.posted,
            held: self.held,
        }
    }
}

/// A settled balance and the part of it that is set aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Balance {
    /// Settled balance.
    pub posted: Micros,
    /// Set aside by open holds.
    pub held: Micros,
}

impl Balance {
    /// What a new hold may take.
    pub const fn available(&self) -> Micros {
        self.posted.saturating_sub_zero(self.held)
    }
}

/// What was spent in one calendar window. Spending in a later window starts at zero; a clock that steps back
/// goes on counting in the window that already runs, so that it opens no fresh allowance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SpendWindow {
    /// Which window: [`crate::time::Timestamp::day`] or [`crate::time::Timestamp::month`].
    pub index: i64,
    /// Spent and held in it.
    pub spent: Micros,
}

impl SpendWindow {
    /// Spent so far in window `index`.
    pub const fn spent_in(&self, index: i64) -> Micros {
        if index <= self.index {
            self.spent
        } else {
            Micros::ZERO
        }
    }

    /// Adds `amount` to window `index` and says which window it was counted in; `None` on overflow.
    pub fn add(&mut self, index: i64, amount: Micros) -> Option<i64> {
        let spent = self.spent_in(index).checked_add(amount)?;
        *self = Self {
            index: self.index.max(index),
            spent,
        };
        Some(self.index)
    }

    /// Takes back what was added to window `index`, when that window still runs.
    pub const fn give_back(&mut self, index: i64, amount: Micros) {
        if self.index == index {
            self.spent = self.spent.saturating_sub_zero(amount);
        }
    }
}
