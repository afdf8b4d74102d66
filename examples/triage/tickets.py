"""The service of the example `triage`, in one file and without dependencies: a ticket system, and a stand-in for
a model.

Storing an answer again under the same ticket changes nothing, so its tool is `idempotent`.
"""

import argparse
import contextlib
import json
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TICKETS = {
    "T-1": {"from": "Ada", "subject": "invoice", "text": "I was charged twice for order A-1."},
    "T-2": {"from": "Grace", "subject": "login", "text": "The link to reset my password does not arrive."},
}


class Refused(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def ticket(number):
    if number not in TICKETS:
        raise Refused(404, f"there is no ticket {number}; there are {', '.join(TICKETS)}")
    return TICKETS[number]


def route(method, path, body):
    match method, path.strip("/").split("/"):
        case "GET", ["tickets", number]:
            return ticket(number)
        case "PUT", ["tickets", number, "answer"]:
            ticket(number)["answer"] = body["text"]
            return {"answered": ticket(number)["from"], "text": body["text"]}
    raise Refused(404, f"there is no {method} {path}")


# The stand-in for a model. It speaks chat completions and answers by fixed rules.


def reply(messages):
    """A verdict where the system text asks for one, else a draft."""
    system, prompt = messages[0]["content"], messages[-1]["content"]
    if "verdict" in system:
        if "refunded" in prompt.partition("Answer:")[2]:
            return json.dumps({"verdict": "reject", "feedback": "Promise no refund. Billing decides that."})
        return json.dumps({"verdict": "pass"})
    name = prompt.partition(" wrote:")[0]
    if "charged" not in prompt:
        return f"Dear {name}, we have sent the link again. Please look into your spam folder, too."
    if "rejected" in prompt:
        return f"Dear {name}, we are sorry. Billing checks both charges today and writes to you."
    return f"Dear {name}, we are sorry. We have refunded the second charge."


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
    parser.add_argument("--port", type=int, default=9100)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    print(f"tickets: listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
