"""The service of the example `deployment`, in one file and without dependencies: builds, rollouts, health checks, and a
stand-in for a model that makes plans.

It recognises calls by their `Idempotency-Key`: a key puts a version in place at most once, and a key that was reported
as "did not happen" is refused from then on (410), so that a late call cannot roll out after all. Both are on disk
before anything is answered, and are read at the start: a service that forgets what it has rolled out would say "did not
happen" of it, and its caller would roll out again.
"""

import argparse
import contextlib
import json
import os
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FIRST = {"version": "2.0.0", "percent": 100}
BROKEN = "2.2.0"


class Refused(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Book:
    """What was put in place and what is refused, in a file of JSON objects, one a line."""

    def __init__(self, path):
        self.path = path
        self.lock = threading.Lock()
        self.done = {}
        self.refused = {}
        try:
            with open(path, "rb") as file:
                text = file.read()
        except FileNotFoundError:
            text = b""
        # A line that was not written to its end was not answered either.
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            os.truncate(path, len(whole))
        for line in whole.splitlines():
            self.take(json.loads(line))

    def take(self, entry):
        key = entry["key"]
        if "refused" in entry:
            self.refused[key] = max(entry["refused"], self.refused.get(key, entry["refused"]))
        else:
            self.done[key] = entry["done"]

    def append(self, entry):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.take(entry)

    def history(self):
        with self.lock:
            return list(self.done.values())

    def running(self, service):
        of_service = [done for done in self.history() if done["service"] == service]
        return of_service[-1] if of_service else {"service": service, **FIRST}

    def put(self, key, permit, what):
        """Puts a version in place, once for each key."""
        with self.lock:
            if key in self.done:
                return self.done[key]
            if key in self.refused and permit <= self.refused[key]:
                raise Refused(410, "reported as not happened; refused since")
            self.append({"key": key, "done": what})
            return what

    def outcome(self, key, permit):
        with self.lock:
            if key in self.done:
                return {"outcome": "happened", "result": self.done[key]}
            self.append({"key": key, "refused": permit})
            return {"outcome": "did_not_happen"}


def permit_of(text):
    """`generation.n` as a list, which is how permits compare."""
    return [int(part) for part in text.split(".")]


def health(service, version):
    if version == BROKEN:
        raise Refused(503, f"{service} {version} answers every third request with 500")
    return {"healthy": f"{service} {version}"}


def route(book, headers, method, path, body):
    match method, path.strip("/").split("/"):
        case "GET", ["services", service]:
            return book.running(service)
        case "GET", ["services", service, "health"]:
            return health(service, book.running(service)["version"])
        case "POST", ["builds"]:
            return {"image": f"{body['service']}:{body['version']}"}
        case "POST", ["rollouts"]:
            what = {name: body[name] for name in ("service", "version", "percent")}
            return book.put(*caller(headers), what)
        case "POST", ["rollouts", "outcome"]:
            return book.outcome(body["idempotency_key"], permit_of(body["permit"]))
        case "POST", ["rollbacks"]:
            what = {"service": body["service"], "version": body["version"], "percent": 100}
            return book.put(*caller(headers), what)
        case "GET", ["history"]:
            return book.history()
    raise Refused(404, f"there is no {method} {path}")


def caller(headers):
    """The key and the permit of a call."""
    return header(headers, "Idempotency-Key"), permit_of(header(headers, "Aetheris-Permit"))


def header(headers, name):
    if name not in headers:
        raise Refused(400, f"the header {name} is missing")
    return headers[name]


# The stand-in for a model. It speaks chat completions and answers by fixed rules.


def reply(messages):
    """A plan: to all users at once, or to a tenth of them first where a person has asked for a canary."""
    feedback = [message["content"] for message in messages if message["role"] == "user"][1:]
    return json.dumps(plan(any("canary" in said.lower() for said in feedback)))


def plan(with_canary):
    service = {"service": "{{ message.service }}"}
    target = {**service, "version": "{{ message.version }}"}
    everyone = {**target, "percent": 100}
    check = {"on_failure": "fail_safe", "retry": {"max_attempts": 3, "backoff": "200ms"}}
    nodes = [node("before", "deploy.status", [], service), node("build", "deploy.build", [], target)]
    if with_canary:
        nodes += [
            node("canary", "deploy.rollout", ["before", "build"], {**target, "percent": 10}),
            node("canary_health", "deploy.health", ["canary"], service, **check),
            node("rollout", "deploy.rollout", ["canary_health"], everyone, when="not nodes.canary_health.failed"),
        ]
        checks, failed = ["canary_health", "health"], "nodes.canary_health.failed or nodes.health.failed"
    else:
        nodes += [node("rollout", "deploy.rollout", ["before", "build"], everyone)]
        checks, failed = ["health"], "nodes.health.failed"
    earlier = {**service, "version": "{{ nodes.before.output.version }}"}
    nodes += [
        node("health", "deploy.health", ["rollout"], service, **check),
        node("rollback", "deploy.rollback", checks, earlier, when=failed),
        node("after", "deploy.status", ["health", "rollback"], service),
    ]
    answer = {"running": "{{ nodes.after.output.version }}", "rolled_back": f"{{{{ {failed} }}}}"}
    return {"nodes": nodes, "answer": answer}


def node(name, tool, needs, given, **more):
    return {"id": name, "kind": "tool", "tool": tool, "needs": needs, "input": given, **more}


def completion(request):
    text = reply(request["messages"])
    asked, said = len(json.dumps(request["messages"])) // 4, len(text) // 4
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said},
    }


def chunks(whole, with_usage):
    """The same answer as the chunks of a stream."""
    choice, usage = whole.pop("choices")[0], whole.pop("usage")
    whole["object"] = "chat.completion.chunk"
    for delta in deltas(choice["message"]):
        yield {**whole, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**whole, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if with_usage:
        yield {**whole, "choices": [], "usage": usage}


def deltas(message):
    """A message in the parts in which a stream brings it."""
    yield {"role": "assistant"}
    for word in re.findall(r"\s*\S+", message["content"]):
        yield {"content": word}


class Handler(BaseHTTPRequestHandler):
    book: Book

    def serve(self):
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            if not isinstance(body, dict):
                raise Refused(400, "the body is not a JSON object")
            if self.path == "/v1/chat/completions":
                self.complete(body)
            else:
                self.answer(200, route(self.book, self.headers, self.command, self.path, body))
        except Refused as refused:
            self.answer(refused.status, {"error": str(refused)})
        except json.JSONDecodeError as error:
            self.answer(400, {"error": f"the body is not JSON: {error}"})
        except KeyError as field:
            self.answer(400, {"error": f"the body has no {field}"})

    do_GET = do_PUT = do_POST = serve

    def complete(self, request):
        whole = completion(request)
        if not request.get("stream"):
            return self.answer(200, whole)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for chunk in chunks(whole, (request.get("stream_options") or {}).get("include_usage")):
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def answer(self, status, value):
        body = json.dumps(value).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9400)
    parser.add_argument("--book", default="deployments.jsonl")
    given = parser.parse_args()
    Handler.book = Book(given.book)
    server = ThreadingHTTPServer(("127.0.0.1", given.port), Handler)
    print(f"deployments: listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
