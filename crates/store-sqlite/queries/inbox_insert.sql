INSERT INTO inbox (signal, job, state, wait_type, received_at, key, payload, memory) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (job, signal) DO NOTHING
