SELECT at, key, permit, result FROM effects WHERE job = ?1 AND key = ?2 ORDER BY permit DESC LIMIT 1
