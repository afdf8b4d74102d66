SELECT due, job, timer FROM timers
WHERE due <= ?1 AND (due, job, timer) > (?3, ?4, ?5) ORDER BY due, job, timer LIMIT ?2
