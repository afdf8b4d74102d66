INSERT INTO agents (name, hash, plan_hash, version, updated_at, doc, source) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (name) DO UPDATE
SET hash = excluded.hash, plan_hash = excluded.plan_hash, version = excluded.version,
    updated_at = excluded.updated_at, doc = excluded.doc, source = excluded.source
