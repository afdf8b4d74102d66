SELECT state, received_at FROM inbox WHERE job = ?1 AND signal = ?2
