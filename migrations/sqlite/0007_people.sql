-- Invitations into workspaces, and the people of the built-in identity.

CREATE TABLE invitations (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, invitation_id BLOB NOT NULL,
    role INTEGER NOT NULL, note TEXT, hash BLOB NOT NULL, created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
    accepted_at INTEGER, accepted_by TEXT, revoked_at INTEGER,
    PRIMARY KEY (bucket, tenant_id, invitation_id)
) WITHOUT ROWID;

-- Reference tables: none of their rows belongs to one tenant.

-- Which invitation a link is.
CREATE TABLE invitation_hashes (hash BLOB NOT NULL PRIMARY KEY, tenant_id BLOB NOT NULL, invitation_id BLOB NOT NULL) WITHOUT ROWID;

-- `login_key` is the login without case.
CREATE TABLE people (
    subject TEXT NOT NULL PRIMARY KEY, login TEXT NOT NULL,
    login_key TEXT NOT NULL UNIQUE, password TEXT NOT NULL,
    totp BLOB NOT NULL, totp_step INTEGER NOT NULL, sessions_after INTEGER NOT NULL,
    reset_hash BLOB UNIQUE, reset_expires_at INTEGER, created_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE recovery_codes (
    subject TEXT NOT NULL, hash BLOB NOT NULL, used_at INTEGER,
    PRIMARY KEY (subject, hash)
) WITHOUT ROWID;
-- One row for all logins of a slot, so that the table does not grow with what strangers type.
CREATE TABLE sign_in_attempts (slot INTEGER NOT NULL PRIMARY KEY, failures INTEGER NOT NULL, next_try_at INTEGER NOT NULL);
