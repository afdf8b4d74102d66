SELECT 1 FROM job_labels WHERE key = ?1 AND value = ?2 AND job = ?3
