SELECT id, at, hash FROM events WHERE job = ?1 AND seq = ?2
