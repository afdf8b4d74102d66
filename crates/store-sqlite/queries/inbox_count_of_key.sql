SELECT count(*) FROM inbox WHERE job = ?1 AND state = 0 AND key = ?2
