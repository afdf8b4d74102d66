SELECT max(priority) FROM jobs INDEXED BY jobs_pending WHERE status = 0 AND ready = ?1 AND priority < ?2
