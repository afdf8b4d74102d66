SELECT 1 FROM agents WHERE tenant = ?2 AND name = ?1
