INSERT INTO checkpoints (job, seq, version, state) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (job) DO UPDATE SET seq = excluded.seq, version = excluded.version, state = excluded.state
WHERE excluded.seq > checkpoints.seq OR excluded.version <> checkpoints.version
