SELECT at, key, permit, result FROM effects WHERE job = ?1 ORDER BY key, permit
