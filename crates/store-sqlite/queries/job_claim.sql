UPDATE jobs
SET seq = ?1, head = ?2, updated_at = ?3, generation = ?4, epoch = ?5, status = 1, ready = 0, listed = NULL, delayed_until = NULL,
    not_before = NULL, lease_until = ?6, attempt = ?7, instance = ?8, worker = ?9
WHERE num = ?10 AND status = 0 AND ready = 1 AND seq = ?11 AND epoch = ?12
