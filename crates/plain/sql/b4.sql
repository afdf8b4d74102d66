-- B4: the hash chain verifies over the stored bytes. Cases are events, and the heads of jobs. That a payload
-- is in canonical form is beyond SQL: the chain goes over its bytes.
WITH chained AS (
    SELECT job, seq, kind, payload_hash, hash, payload,
           sha256(unhex(hex('aetheris.event.1') || '00' || job || printf('%016x', seq) || id || printf('%02x', code)
               || printf('%04x', schema_version) || printf('%08x', generation) || printf('%08x', epoch)
               || printf('%016x', at) || coalesce(payload_hash, sha256(payload))
               || lag(hash, 1, printf('%064d', 0)) OVER (PARTITION BY job ORDER BY seq))) AS expected
    FROM events
)
SELECT job || ' ' || seq AS place,
       CASE WHEN hash IS NOT expected THEN 'its hash does not follow from its header and the event before'
            WHEN payload_hash IS NOT NULL AND payload_hash <> sha256(payload) THEN 'its payload does not have its hash'
            WHEN kind IS NULL OR NOT json_valid(payload) THEN 'it cannot be understood' END AS violation
FROM chained
UNION ALL
SELECT j.job, CASE WHEN j.head IS NOT (SELECT e.hash FROM events e WHERE e.job = j.job ORDER BY e.seq DESC LIMIT 1)
                   THEN 'the head of its row is not the hash of its last event' END
FROM jobs j
