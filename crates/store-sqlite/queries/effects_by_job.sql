SELECT at, key, permit, result FROM effects WHERE job = ?1 AND at >= ?2 ORDER BY key, permit
