//! The shapes that the routes of keys speak, for the OpenAPI document.

#![expect(
    dead_code,
    reason = "these types only describe documents; the routes write the JSON"
)]

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::schemas_pricing::MarkupBody;

/// Which page of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PageParams {
    /// 1 to 100; 20 when absent.
    #[param(minimum = 1, maximum = 100, required = false)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[param(required = false)]
    cursor: Option<String>,
}

/// Names a key in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct KeyPath {
    /// The key.
    #[param(rename = "keyId")]
    key_id: Uuid,
}

/// What a key is for.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "lowercase")]
enum KeyKind {
    Secret,
    Publishable,
    Sandbox,
}

/// What a key may do beside calls.
#[derive(Serialize, ToSchema)]
enum KeyScope {
    #[schema(rename = "tenant:read")]
    TenantRead,
    #[schema(rename = "tenant:write")]
    TenantWrite,
    #[schema(rename = "catalog:write")]
    CatalogWrite,
    #[schema(rename = "credits:move")]
    CreditsMove,
    #[schema(rename = "credentials:manage")]
    CredentialsManage,
    #[schema(rename = "tokens:manage")]
    TokensManage,
    #[schema(rename = "payouts:manage")]
    PayoutsManage,
    #[schema(rename = "members:manage")]
    MembersManage,
    #[schema(rename = "widget:read")]
    WidgetRead,
}

/// Whether a key works.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "lowercase")]
enum KeyStatus {
    Active,
    Expired,
    Revoked,
}

/// Markup of a key, on calls of end users through it.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct KeyPrices {
    /// Percentage of the base in basis points.
    #[schema(minimum = 0, maximum = 100_000)]
    markup_bps: Option<i64>,
    /// Fixed part per call.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    flat_markup_usdc: Option<String>,
    /// By `provider/endpoint` or `provider/model`; at most 200.
    endpoints: Option<BTreeMap<String, MarkupBody>>,
}

/// What a key is narrowed to.
#[derive(Serialize, ToSchema)]
struct KeyTools {
    /// `provider/endpoint`, `provider/model` or `provider/*`.
    #[schema(max_items = 200)]
    enable: Option<Vec<String>>,
}

/// A key to issue.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct NewKey {
    /// Its name.
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    /// `secret` when absent.
    #[schema(inline)]
    kind: Option<KeyKind>,
    /// None when absent.
    #[schema(max_items = 50)]
    scopes: Option<Vec<KeyScope>>,
    pricing: Option<KeyPrices>,
    /// Absent: everything that the workspace has enabled.
    tools: Option<KeyTools>,
    /// Seconds until it stops working; never when absent.
    #[schema(minimum = 60, maximum = 31_536_000)]
    expires_in: Option<i64>,
}

/// How to replace a key.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct RotateKey {
    /// How long the old key works beside the new one.
    #[schema(minimum = 0, maximum = 86_400, default = 86_400)]
    overlap_seconds: Option<i64>,
}

/// What may be shown of a key.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "camelCase")]
struct KeyMetadata {
    id: Uuid,
    name: String,
    #[schema(inline)]
    kind: KeyKind,
    /// The first characters of the key.
    key_prefix: String,
    scopes: Vec<KeyScope>,
    pricing: KeyPrices,
    #[schema(required)]
    tools: Option<KeyTools>,
    #[schema(inline)]
    status: KeyStatus,
    #[schema(format = DateTime)]
    created_at: String,
    /// `member:` and the subject, or `operator`.
    created_by: String,
    #[schema(required, format = DateTime)]
    expires_at: Option<String>,
    /// To the minute.
    #[schema(required, format = DateTime)]
    last_used_at: Option<String>,
    #[schema(required, format = DateTime)]
    revoked_at: Option<String>,
}

/// A key that was just issued.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct IssuedKey {
    success: bool,
    #[schema(inline)]
    kind: KeyKind,
    /// The raw key, shown this once.
    #[schema(pattern = "^[a-z][a-z0-9]*_(?:sk_live|pk_live|sk_test)_[0-9A-Za-z]{49}$")]
    key: String,
    key_metadata: KeyMetadata,
}

/// A key.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct KeyEnvelope {
    success: bool,
    key_metadata: KeyMetadata,
}

/// A page of keys.
#[derive(ToSchema)]
pub(super) struct KeyList {
    success: bool,
    data: Vec<KeyMetadata>,
    #[schema(required)]
    next_cursor: Option<String>,
}
