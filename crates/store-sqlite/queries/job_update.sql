UPDATE jobs
SET seq = ?1, head = ?2, updated_at = ?3, status = ?9, ready = ?10, listed = CASE WHEN ?9 NOT IN (0, 1) THEN ?9 END, delayed_until = ?11, not_before = ?12,
    end_requested = ?13, wait_type = ?14, plan_hash = ?15, error = ?16, waiting = ?17, pause_reason = ?19, paused_at = ?20,
    lease_until = CASE WHEN ?18 THEN lease_until END,
    attempt = CASE WHEN ?18 THEN attempt END,
    instance = CASE WHEN ?18 THEN instance END,
    worker = CASE WHEN ?18 THEN worker END
WHERE num = ?4 AND seq = ?5 AND generation = ?6 AND epoch = ?7 AND (lease_until IS NOT NULL) >= ?8
