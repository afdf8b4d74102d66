INSERT INTO job_labels (key, value, job) VALUES (?1, ?2, ?3)
