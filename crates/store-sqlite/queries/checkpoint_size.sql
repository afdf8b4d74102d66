SELECT seq, octet_length(state) FROM checkpoints WHERE job = ?1 AND version = ?2
