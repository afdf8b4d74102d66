"""The ticket system of the example `triage`: tickets to read, answers to store. Storing an answer again
under the same ticket changes nothing, so its tool is `idempotent`."""

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TICKETS = {
    "T-1": {"from": "Ada", "subject": "invoice", "text": "I was charged twice for order A-1."},
    "T-2": {"from": "Grace", "subject": "login", "text": "The reset link does not arrive."},
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        ticket = TICKETS.get(self.path.removeprefix("/tickets/"))
        self.answer(*((200, ticket) if ticket else (404, {"error": "no such ticket"})))

    def do_PUT(self):
        ticket = TICKETS.get(self.path.removeprefix("/tickets/").removesuffix("/answer"))
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if not ticket:
            return self.answer(404, {"error": "no such ticket"})
        ticket["answer"] = body["text"]
        return self.answer(200, {"answered": ticket["from"], "text": body["text"]})

    def answer(self, status, value):
        body = json.dumps(value).encode()
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
    server.serve_forever()


if __name__ == "__main__":
    main()
