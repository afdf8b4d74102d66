SELECT key, received_at, wait_type FROM inbox WHERE job = ?1 AND state = 0 ORDER BY num LIMIT ?2
