-- Invitations into workspaces, and the people of the built-in identity.

CREATE TABLE invitations (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, invitation_id UUID NOT NULL,
    role SMALLINT NOT NULL, note TEXT, hash BYTEA NOT NULL, created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL,
    accepted_at BIGINT, accepted_by TEXT COLLATE "C", revoked_at BIGINT,
    PRIMARY KEY (bucket, tenant_id, invitation_id)
);

-- Reference tables: none of their rows belongs to one tenant.

-- Which invitation a link is.
CREATE TABLE invitation_hashes (hash BYTEA NOT NULL PRIMARY KEY, tenant_id UUID NOT NULL, invitation_id UUID NOT NULL);

-- `login_key` is the login without case.
CREATE TABLE people (
    subject TEXT COLLATE "C" NOT NULL PRIMARY KEY, login TEXT NOT NULL,
    login_key TEXT COLLATE "C" NOT NULL UNIQUE, password TEXT NOT NULL,
    totp BYTEA NOT NULL, totp_step BIGINT NOT NULL, sessions_after BIGINT NOT NULL,
    reset_hash BYTEA UNIQUE, reset_expires_at BIGINT, created_at BIGINT NOT NULL
);
CREATE TABLE recovery_codes (
    subject TEXT COLLATE "C" NOT NULL, hash BYTEA NOT NULL, used_at BIGINT,
    PRIMARY KEY (subject, hash)
);
-- One row for all logins of a slot, so that the table does not grow with what strangers type.
CREATE TABLE sign_in_attempts (slot BIGINT NOT NULL PRIMARY KEY, failures BIGINT NOT NULL, next_try_at BIGINT NOT NULL);
