UPDATE meta
SET pending = found.pending, running = found.running, waiting = found.waiting, parked = found.parked,
    completed = found.completed, failed = found.failed, cancelled = found.cancelled, paused = found.paused
FROM (SELECT count(*) FILTER (WHERE status = 0) AS pending, count(*) FILTER (WHERE status = 1) AS running,
             count(*) FILTER (WHERE status = 2) AS waiting, count(*) FILTER (WHERE status = 3) AS parked,
             count(*) FILTER (WHERE status = 4) AS completed, count(*) FILTER (WHERE status = 5) AS failed,
             count(*) FILTER (WHERE status = 6) AS cancelled, count(*) FILTER (WHERE status = 7) AS paused
      FROM jobs) AS found
WHERE id = 1
