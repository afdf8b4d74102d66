SELECT 1 FROM agents WHERE name = ?1
