UPDATE meta
SET clock = ?1, clock_offset = ?2, clock_boot = ?3, clock_boot_id = ?13,
    pending = pending + ?4, running = running + ?5, waiting = waiting + ?6, parked = parked + ?7,
    completed = completed + ?8, failed = failed + ?9, cancelled = cancelled + ?10,
    paused = paused + ?11, writes = writes + ?12
WHERE id = 1
