-- Tools that the operator imported, one row a provider, shared by all tenants.

CREATE TABLE imported_tools (
    provider TEXT COLLATE "C" NOT NULL PRIMARY KEY, base_url TEXT, source TEXT NOT NULL, tools TEXT NOT NULL,
    imported_at BIGINT NOT NULL
);
INSERT INTO revisions (name, revision) VALUES ('imported_tools', 1);
