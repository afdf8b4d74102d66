"""The service of the example `nightly`, in one file and without dependencies: shops with their sales, a place for
reports, and a stand-in for a model.

Storing a report again under the same day changes nothing, so its tool is `idempotent`. The service counts what it is
asked, to show what a restart repeats, and can be told to keep an answer back.
"""

import argparse
import contextlib
import json
import re
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

SALES = {"airport": 412050, "castle": 98700, "harbour": None, "market": 265325, "north": 120990, "station": 301480}
REPORTS = {}
CALLS = []  # a list, since `append` is safe from several threads at once and `+= 1` is not
RELEASED = threading.Event()
RELEASED.set()


class Refused(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def sales(shop):
    CALLS.append(f"sales of {shop}")
    if shop not in SALES:
        raise Refused(404, f"there is no shop {shop}; there are {', '.join(SALES)}")
    if SALES[shop] is None:
        raise Refused(503, f"the till of {shop} is switched off")
    if shop == "north":
        RELEASED.wait()
    return {"shop": shop, "cents": SALES[shop]}


def route(method, path, body):
    match method, urlsplit(path).path.strip("/").split("/"):
        case "GET", ["shops"]:
            return list(SALES)
        case "GET", ["shops", shop, "sales"]:
            return sales(shop)
        case "PUT", ["reports", day]:
            CALLS.append("reports")
            REPORTS[day] = {name: body[name] for name in ("cents", "failures", "summary")}
            return {"day": day, **REPORTS[day]}
        case "GET", ["reports"]:
            return REPORTS
        case "GET", ["calls"]:
            return dict(sorted(Counter(CALLS).items()))
        case "POST", ["control", "hold"]:
            RELEASED.clear()
            return {"hold": "the sales of north are kept back"}
        case "POST", ["control", "release"]:
            RELEASED.set()
            return {"release": "the sales of north are answered"}
    raise Refused(404, f"there is no {method} {path}")


# The stand-in for a model. It speaks chat completions and answers by fixed rules.


def reply(messages):
    """Puts the lines of the prompt, `SHOP: CENTS cents` or `SHOP: no figures`, into a sentence or two."""
    CALLS.append("summaries")
    prompt = messages[-1]["content"]
    figures = {shop: int(cents) for shop, cents in re.findall(r"^(\w+): (\d+) cents$", prompt, re.MULTILINE)}
    missing = re.findall(r"^(\w+): no figures$", prompt, re.MULTILINE)
    if not figures:
        return "No shop has reported."
    total, best = sum(figures.values()) / 100, max(figures, key=figures.get)
    text = f"{len(figures)} shops sold for {total:.2f} EUR, {best} most of all."
    return f"{text} No figures from {', '.join(missing)}." if missing else text


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
        except ConnectionError:
            pass  # the caller was killed meanwhile

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
    parser.add_argument("--port", type=int, default=9300)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    print(f"shops: listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
