-- Where a count was wrong before, no row is changed, and the counts are made anew first: one would fall below nothing, all
-- together leave a number no room for the jobs that one transaction can add (?14), or one is no number.
UPDATE meta
SET clock = ?1, clock_offset = ?2, clock_boot = ?3, clock_boot_id = ?13,
    pending = pending + ?4, running = running + ?5, waiting = waiting + ?6, parked = parked + ?7,
    completed = completed + ?8, failed = failed + ?9, cancelled = cancelled + ?10,
    paused = paused + ?11, writes = min(writes, 9223372036854775807 - ?12) + ?12
WHERE id = 1
  AND min(pending + ?4, running + ?5, waiting + ?6, parked + ?7, completed + ?8, failed + ?9, cancelled + ?10, paused + ?11) >= 0
  AND typeof(pending + running + waiting + parked + completed + failed + cancelled + paused + ?14) = 'integer'
  AND typeof(max(pending, running, waiting, parked, completed, failed, cancelled, paused)) = 'integer'
