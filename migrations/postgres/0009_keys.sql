-- Keys that were replaced by another.

ALTER TABLE api_keys ADD COLUMN replaced_by UUID;
