UPDATE inbox SET state = 1 WHERE job = ?1 AND signal = ?2 AND state = 0
