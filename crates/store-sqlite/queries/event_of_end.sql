-- The kind of the event that has ended a job.
SELECT kind FROM events WHERE job = ?1 AND kind IN (?2, ?3, ?4) ORDER BY seq DESC LIMIT 1
