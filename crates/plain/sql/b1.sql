-- B1: events are numbered without gap or repetition. Cases are jobs.
SELECT j.job AS place,
       CASE WHEN count(e.seq) = 0 OR min(e.seq) <> 1 OR max(e.seq) <> count(e.seq) OR count(DISTINCT e.seq) <> count(e.seq)
                 OR max(e.seq) <> j.seq
            THEN 'its row has ' || j.seq || ' events, its log ' || count(e.seq) || ' up to ' || ifnull(max(e.seq), 0) END
           AS violation
FROM jobs j LEFT JOIN events e ON e.job = j.job GROUP BY j.job
