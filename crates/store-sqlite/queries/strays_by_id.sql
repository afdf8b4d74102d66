-- Rows of jobs that are not there, by the jobs' ids.
SELECT 'timers', job, count(*) FROM timers
WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = timers.job) GROUP BY job
UNION ALL
SELECT 'job_labels', job, count(*) FROM job_labels
WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = job_labels.job) GROUP BY job
LIMIT 1000
