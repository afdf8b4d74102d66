SELECT state, received_at, octet_length(payload), memory FROM inbox WHERE job = ?1 AND signal = ?2
