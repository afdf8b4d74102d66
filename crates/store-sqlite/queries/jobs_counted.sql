SELECT status, count(*) FROM jobs GROUP BY status
