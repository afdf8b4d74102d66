SELECT hash, plan_hash, doc, source, updated_at, name FROM agents WHERE name > ?1 ORDER BY name
