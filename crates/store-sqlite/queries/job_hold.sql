-- A job that no event can hold is held by its row, as a restore's (?3) unless an operator had paused it; or it is given the
-- end (?2) that its events have and its row does not say.
UPDATE jobs
SET status = ?2, ready = 0, listed = ?2, delayed_until = NULL,
    pause_reason = CASE WHEN pause_reason = 0 AND paused_at IS NOT NULL AND ?3 IS NOT NULL THEN 0 ELSE ?3 END,
    paused_at = CASE WHEN pause_reason = 0 AND paused_at IS NOT NULL AND ?3 IS NOT NULL THEN paused_at ELSE ?4 END,
    lease_until = NULL, attempt = NULL, instance = NULL, worker = NULL
WHERE num = ?1
