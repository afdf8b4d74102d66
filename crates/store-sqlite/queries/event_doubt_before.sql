-- tool_invocation_started and _finished, step_in_doubt and in_doubt_resolved.
SELECT seq, kind, schema_version, generation, epoch, at, id, payload_hash, hash, payload
FROM events WHERE job = ?1 AND seq < ?2 AND kind IN (15, 16, 20, 21) ORDER BY seq DESC LIMIT 1
