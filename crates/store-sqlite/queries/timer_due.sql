SELECT due FROM timers WHERE job = ?1 AND timer = ?2
