INSERT INTO timers (job, timer, due) VALUES (?1, ?2, ?3) ON CONFLICT (job, timer) DO UPDATE SET due = excluded.due
