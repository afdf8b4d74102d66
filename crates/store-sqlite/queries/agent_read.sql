SELECT hash, plan_hash, doc, source, updated_at FROM agents WHERE tenant = (SELECT num FROM tenants WHERE name = ?2) AND name = ?1
