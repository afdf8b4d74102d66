// Drives one job through the types that openapi-typescript makes of the document.

import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

type JobView = components["schemas"]["JobView"];
type EventView = components["schemas"]["EventView"];

const LOOKS = 100;
const [url, agent] = process.argv.slice(2) as [string, string];
const client = createClient<paths>({ baseUrl: url });

function must<T>(answer: { data?: T; error?: unknown; response: Response }): T {
  if (answer.data === undefined) {
    throw new Error(`${answer.response.status}: ${JSON.stringify(answer.error)}`);
  }
  return answer.data;
}

function holds(condition: boolean, what: unknown): asserts condition {
  if (!condition) throw new Error(JSON.stringify(what));
}

async function awaited(id: string, statuses: JobView["status"][]): Promise<JobView> {
  for (let look = 0; look < LOOKS; look += 1) {
    const path = { id };
    const view = must(await client.GET("/api/jobs/{id}", { params: { path, query: { wait: "200ms" } } }));
    if (statuses.includes(view.status)) return view;
  }
  throw new Error(`${id} is none of ${statuses.join(", ")}`);
}

/** What an event says in short: the compiler knows which payload a type has. */
function short(event: EventView): string {
  switch (event.type) {
    case "job_created":
      return event.payload.agent;
    case "node_started":
      return `${event.payload.node} try ${event.payload.try}`;
    case "job_waiting":
      return event.payload.wait_type;
    default:
      return event.type;
  }
}

async function main(): Promise<void> {
  const path = { agent: "clients" };
  const file = JSON.parse(agent) as components["schemas"]["AgentFile"];
  const put = must(await client.PUT("/api/agents/{agent}", { params: { path }, body: file }));
  const send = () =>
    client.POST("/api/agents/{agent}/message", {
      params: { path, header: { "Idempotency-Key": "typescript" } },
      body: { message: { order: 7 } },
    });
  const sent = must(await send());
  holds(must(await send()).job_id === sent.job_id, sent);

  const id = sent.job_id;
  const waiting = await awaited(id, ["waiting", "parked"]);
  const key = waiting.waiting?.correlation_key;
  holds(key === `ok-${id}`, waiting.waiting);
  const signal = (correlation_key: string) =>
    client.POST("/api/jobs/{id}/signal", {
      params: { path: { id } },
      body: { correlation_key, payload: { yes: true } },
    });
  const refused = await signal("wrong");
  holds(refused.error?.code === "wrong_correlation_key", refused.error);
  holds(must(await signal(key)).status === "delivered", key);

  const done = await awaited(id, ["completed", "failed", "cancelled"]);
  holds(done.status === "completed", done);
  holds(JSON.stringify(done.result) === JSON.stringify({ order: 7, said: { yes: true } }), done.result);
  const read = await client.GET("/api/jobs/{id}/events", { params: { path: { id }, query: { limit: 1000 } } });
  const { events } = must(read);
  holds(events.every((event, place) => event.seq === place + 1), events);
  const told = events.map(short);
  holds(told[0] === "clients" && told.includes("human") && told.includes("tell try 1"), told);
  holds(events.at(-1)?.type === "job_completed", told);
  const verified = must(await client.GET("/api/jobs/{id}/verify", { params: { path: { id } } }));
  holds(verified.valid, verified);
  console.log(`typescript: ${id} of ${put.agent} ${put.version}: ${events.length} events, each of its kind`);
}

await main();
