SELECT due, job, timer FROM timers WHERE job = ?1 ORDER BY due, timer
