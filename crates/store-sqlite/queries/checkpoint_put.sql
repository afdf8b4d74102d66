INSERT INTO checkpoints (job, seq, state) VALUES (?1, ?2, ?3)
ON CONFLICT (job) DO UPDATE SET seq = excluded.seq, state = excluded.state WHERE excluded.seq > checkpoints.seq
