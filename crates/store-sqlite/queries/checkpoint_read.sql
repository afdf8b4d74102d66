SELECT seq, state FROM checkpoints WHERE job = ?1
