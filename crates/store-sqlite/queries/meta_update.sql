-- Where a count would fall below nothing it was wrong before, and no row is changed: the counts are made anew first.
UPDATE meta
SET clock = ?1, clock_offset = ?2, clock_boot = ?3, clock_boot_id = ?13,
    pending = pending + ?4, running = running + ?5, waiting = waiting + ?6, parked = parked + ?7,
    completed = completed + ?8, failed = failed + ?9, cancelled = cancelled + ?10,
    paused = paused + ?11, writes = writes + ?12
WHERE id = 1
  AND min(pending + ?4, running + ?5, waiting + ?6, parked + ?7, completed + ?8, failed + ?9, cancelled + ?10, paused + ?11) >= 0
