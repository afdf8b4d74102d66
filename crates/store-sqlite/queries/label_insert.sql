INSERT INTO job_labels (tenant, key, value, job) VALUES (?4, ?1, ?2, ?3)
