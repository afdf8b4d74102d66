SELECT count(*) FILTER (WHERE status = 0), count(*) FILTER (WHERE status = 1), count(*) FILTER (WHERE status = 2),
       count(*) FILTER (WHERE status = 3), count(*) FILTER (WHERE status = 4), count(*) FILTER (WHERE status = 5),
       count(*) FILTER (WHERE status = 6), count(*) FILTER (WHERE status = 7)
FROM jobs
