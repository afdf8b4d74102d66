DELETE FROM agents WHERE name = ?1
