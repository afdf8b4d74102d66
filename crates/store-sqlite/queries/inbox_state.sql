SELECT state, received_at, octet_length(payload) FROM inbox WHERE job = ?1 AND signal = ?2
