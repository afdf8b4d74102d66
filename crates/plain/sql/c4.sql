-- C4: a call comes with the same key each time, which follows from job, node and ordinal. Cases are steps whose calls need a
-- permission: who only asks what became of a call has a key of its own for each question.
SELECT w.job || ' ' || w.node AS place,
       CASE WHEN min(w.key) <> max(w.key)
              OR min(w.key) <> substr(sha256(unhex(hex('aetheris.key.1') || '00' || w.job || '00000000' || hex(w.node))), 1, 32)
            THEN 'its tool saw ' || count(DISTINCT w.key) || ' keys, or another than the call has' END AS violation
FROM arrivals w JOIN jobs j ON j.job = w.job GROUP BY w.job, w.node
