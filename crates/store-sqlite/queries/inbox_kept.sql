SELECT key, payload, received_at, signal, wait_type FROM inbox WHERE job = ?1 AND state = 0 ORDER BY num
