-- The rows of a SQLite store, attached as `store`, in the form of tables.sql.
INSERT INTO jobs
SELECT lower(hex(j.id)), j.seq, j.generation << 32 | j.epoch, j.epoch, s.name, lower(hex(j.head)), j.lease_until,
       lower(hex(j.attempt)), j.waiting, j.agent, j.created_at
FROM store.jobs j LEFT JOIN store.job_statuses s ON s.code = j.status;

INSERT INTO events
SELECT lower(hex(j.id)), e.seq, k.name, e.kind, e.schema_version, e.generation, e.epoch, e.generation << 32 | e.epoch,
       e.at, lower(hex(e.id)), nullif(lower(hex(e.payload_hash)), ''), lower(hex(e.hash)), e.payload
FROM store.events e JOIN store.jobs j ON j.num = e.job LEFT JOIN store.event_kinds k ON k.code = e.kind
ORDER BY e.job, e.seq;

INSERT INTO ledger
SELECT lower(hex(l.key)), lower(hex(j.id)), l.node, l.permit, lower(hex(l.permit_id)), s.name, l.disproved, l.deadline,
       l.lifetime, l.tool
FROM store.ledger l JOIN store.jobs j ON j.num = l.job LEFT JOIN store.ledger_statuses s ON s.code = l.status;

INSERT INTO effects
SELECT lower(hex(j.id)), lower(hex(x.key)), x.permit, x.at, x.result
FROM store.effects x JOIN store.jobs j ON j.num = x.job;

INSERT INTO evidence
SELECT lower(hex(j.id)), lower(hex(v.key)), v.permit, v.conflict, v.outcome
FROM store.evidence v JOIN store.jobs j ON j.num = v.job;

INSERT INTO inbox
SELECT lower(hex(j.id)), i.num, i.state,
       CASE i.wait_type WHEN 0 THEN 'human' WHEN 1 THEN 'signal' WHEN 2 THEN 'timer' WHEN 3 THEN 'webhook' END, i.key, i.payload,
       lower(hex(i.signal))
FROM store.inbox i JOIN store.jobs j ON j.num = i.job;
