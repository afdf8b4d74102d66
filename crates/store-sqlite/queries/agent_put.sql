INSERT INTO agents (tenant, name, hash, plan_hash, version, updated_at, doc, source) VALUES (?8, ?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (tenant, name) DO UPDATE
SET hash = excluded.hash, plan_hash = excluded.plan_hash, version = excluded.version,
    updated_at = excluded.updated_at, doc = excluded.doc, source = excluded.source
