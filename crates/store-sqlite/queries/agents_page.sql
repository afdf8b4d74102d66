SELECT hash, plan_hash, doc, source, updated_at FROM agents WHERE name > ?1 ORDER BY name LIMIT ?2
