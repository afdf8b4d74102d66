SELECT seq, kind, schema_version, generation, epoch, at, id, payload_hash, hash, payload
FROM events WHERE job = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3
