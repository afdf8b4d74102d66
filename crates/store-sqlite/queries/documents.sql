-- Every document under the hash that names it. An agent's plan is there, too.
SELECT 'plan', lower(hex(hash)), hash, doc, 1 FROM plans
UNION ALL
SELECT 'agent', name, hash, doc, EXISTS (SELECT 1 FROM plans WHERE plans.hash = agents.plan_hash) FROM agents
