-- In the order of the statuses.
UPDATE meta
SET pending = ?1, running = ?2, waiting = ?3, parked = ?4, completed = ?5, failed = ?6, cancelled = ?7, paused = ?8
WHERE id = 1
