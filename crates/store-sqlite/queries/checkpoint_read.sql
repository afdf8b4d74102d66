SELECT seq, state, version FROM checkpoints WHERE job = ?1 AND version = ?2
