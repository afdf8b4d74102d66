SELECT coalesce(max(num), 0) + 1 FROM jobs
