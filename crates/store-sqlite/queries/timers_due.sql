SELECT due, job, timer FROM timers WHERE due <= ?1 ORDER BY due, job, timer LIMIT ?2
