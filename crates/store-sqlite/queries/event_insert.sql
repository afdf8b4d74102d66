INSERT INTO events (job, seq, kind, schema_version, generation, epoch, at, id, payload_hash, hash, payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
