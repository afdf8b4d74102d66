SELECT max(num) FROM jobs
