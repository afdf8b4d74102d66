SELECT min(due) FROM timers WHERE due > ?1
