-- C4: every body of a call has the same key, which follows from job, node and ordinal. Cases are steps whose bodies act: who
-- only asks what became of a call has a key of its own for each question.
SELECT w.job || ' ' || w.node AS place,
       CASE WHEN min(w.key) <> max(w.key)
              OR min(w.key) <> substr(sha256(unhex(hex('aetheris.key.1') || '00' || w.job || '00000000' || hex(w.node))), 1, 32)
            THEN 'its bodies saw ' || count(DISTINCT w.key) || ' keys, or another than the call has' END AS violation
FROM witness w JOIN jobs j ON j.job = w.job WHERE w.acts GROUP BY w.job, w.node
