-- A job that no event can hold is held by its row.
UPDATE jobs
SET status = ?2, ready = 0, listed = ?2, delayed_until = NULL, pause_reason = ?3, paused_at = ?4,
    lease_until = NULL, attempt = NULL, instance = NULL, worker = NULL
WHERE num = ?1
