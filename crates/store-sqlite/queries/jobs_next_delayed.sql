SELECT min(delayed_until) FROM jobs INDEXED BY jobs_delayed WHERE delayed_until IS NOT NULL AND status = 0
