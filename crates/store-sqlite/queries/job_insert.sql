INSERT INTO jobs (seq, generation, epoch, status, head, updated_at, ready, listed, delayed_until, not_before, end_requested,
                  wait_type, plan_hash, error, waiting, id, agent, agent_version, priority, session, labels,
                  client_key, client_body, created_at, tenant)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, nullif(?4, 0), ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?6, ?23)
