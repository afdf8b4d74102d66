"""The service of the example `research`, in one file and without dependencies: a library of documents, notes, and a
stand-in for a model that calls tools.

Saving a note again under the same name changes nothing, so its tool is `idempotent`. The service counts what it is
asked, to show that a restart repeats nothing that is on record.
"""

import argparse
import contextlib
import json
import re
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

DOCUMENTS = {
    "handbook-2023": {"title": "Shop handbook", "text": "Customers may return an item within 14 days."},
    "policy-2025": {"title": "Return policy", "text": "Customers may return an item within 30 days."},
    "terms": {"title": "Terms of sale", "text": "The warranty lasts 2 years."},
    "faq": {"title": "Frequent questions", "text": "The warranty lasts 2 years, also for used items."},
}
NOTES = {}
CALLS = []  # a list, since `append` is safe from several threads at once and `+= 1` is not


class Refused(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def search(query):
    """The documents that contain a word of the query with more than five letters."""
    words = [word for word in re.findall(r"\w+", query.lower()) if len(word) > 5]
    return [
        {"id": name, "title": document["title"]}
        for name, document in DOCUMENTS.items()
        if any(word in document["text"].lower() for word in words)
    ]


def route(method, path, body):
    url = urlsplit(path)
    match method, url.path.strip("/").split("/"):
        case "GET", ["documents"]:
            CALLS.append("searches")
            return search(parse_qs(url.query).get("query", [""])[0])
        case "GET", ["documents", name]:
            CALLS.append("reads")
            if name not in DOCUMENTS:
                raise Refused(404, f"there is no document {name}")
            return {"id": name, **DOCUMENTS[name]}
        case "PUT", ["notes", name]:
            CALLS.append("notes")
            NOTES[name] = {"text": body["text"], "sources": body["sources"]}
            return {"saved": name}
        case "GET", ["notes"]:
            return NOTES
        case "GET", ["calls"]:
            return dict(sorted(Counter(CALLS).items()))
    raise Refused(404, f"there is no {method} {path}")


# The stand-in for a model. It speaks chat completions and answers by fixed rules.


def reply(messages):
    """What comes next: searching, reading all that was found, asking a person where the sources differ, saving a note,
    and answering."""
    CALLS.append("turns")
    question = next(message["content"] for message in messages if message["role"] == "user")
    results = [told(message["content"]) for message in messages if message["role"] == "tool"]
    if not results:
        return call(messages, "library_search", {"query": question})
    found, results = results[0], results[1:]
    if not found:
        return say({"answer": "The library does not say.", "sources": []})
    if not results:
        return call(messages, "library_read", *({"id": document["id"]} for document in found))
    # What a document says is its number with a unit.
    facts = {read["id"]: re.search(r"\d+ \w+", read["text"]).group() for read in results if "text" in read}
    answers = [result["answer"] for result in results if "answer" in result] or sorted(set(facts.values()))
    if len(answers) > 1:
        says = ", ".join(f"{name} says {fact}" for name, fact in facts.items())
        return call(messages, "ask_editor", {"question": f"{question} The sources differ: {says}."})
    sources = [name for name, fact in facts.items() if fact == answers[0]]
    if not any("saved" in result for result in results):
        return call(messages, "notes_save", {"text": f"{question} {answers[0]}.", "sources": sources})
    return say({"answer": answers[0], "sources": sources})


def told(content):
    """The result of a call. The error of a failed call comes as text."""
    return {"error": content} if content.startswith("error:") else json.loads(content)


def say(answer):
    return {"role": "assistant", "content": json.dumps(answer)}


def call(messages, name, *inputs):
    """A message that calls a tool once for each input. No two calls of a conversation have the same id."""
    functions = [{"name": name, "arguments": json.dumps(given)} for given in inputs]
    ids = [f"call_{len(messages)}_{n}" for n in range(len(inputs))]
    calls = [{"id": own, "type": "function", "function": function} for own, function in zip(ids, functions)]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def completion(request):
    message = reply(request["messages"])
    finish = "tool_calls" if "tool_calls" in message else "stop"
    asked, said = len(json.dumps(request["messages"])) // 4, len(json.dumps(message)) // 4
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
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
    for word in re.findall(r"\s*\S+", message["content"] or ""):
        yield {"content": word}
    for index, called in enumerate(message.get("tool_calls", [])):
        name, arguments = called["function"]["name"], called["function"]["arguments"]
        yield {"tool_calls": [{**called, "index": index, "function": {"name": name, "arguments": ""}}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}


class Handler(BaseHTTPRequestHandler):
    def serve(self):
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            if not isinstance(body, dict):
                raise Refused(400, "the body is not a JSON object")
            if self.path == "/v1/chat/completions":
                self.complete(body)
            else:
                self.answer(200, route(self.command, self.path, body))
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
    parser.add_argument("--port", type=int, default=9200)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    print(f"library: listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
