"""The payments service of the example `refund`, in one file and without dependencies.

It books every refund that it accepts in a file, one JSON object a line. It recognises calls by their
`Idempotency-Key`: a key is booked at most once, and a key that was reported as "did not happen" is refused
from then on (410), so that a late call cannot be booked after all. Refusals are in a file of their own. Both
files are on disk before anything is answered, and are read at the start: a service that forgets what it has
booked would say "did not happen" of it, and its caller would pay again.
"""

import argparse
import contextlib
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ORDERS = {
    "A-1": {"cents": 4990, "total": "49.90 EUR"},
    "A-2": {"cents": 1250, "total": "12.50 EUR"},
}


def permit_of(text):
    """`generation.n` as a pair, which is how permits compare."""
    generation, number = text.split(".")
    return int(generation), int(number)


class Log:
    """A file of JSON objects, one a line, each on disk when `append` returns."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, "rb") as file:
                text = file.read()
        except FileNotFoundError:
            text = b""
        # A line that was not written to its end was not answered either.
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            os.truncate(path, len(whole))
        self.entries = [json.loads(line) for line in whole.splitlines()]

    def append(self, entry):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())


class Book:
    """What is booked and what is refused, under one lock."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.bookings = Log(path)
        self.refusals = Log(path + ".refused")
        self.booked = {}
        for entry in self.bookings.entries:
            self.booked[entry.pop("key")] = entry
        self.refused = {}
        for entry in self.refusals.entries:
            key, permit = entry["key"], tuple(entry["permit"])
            self.refused[key] = max(permit, self.refused.get(key, permit))
        self.hold = threading.Event()

    def refund(self, key, permit, body):
        with self.lock:
            if key in self.booked:
                return 200, self.booked[key]
            if key in self.refused and permit <= self.refused[key]:
                return 410, {"error": "reported as not happened; refused since"}
            refund = {**body, "refund_id": f"rf-{len(self.booked) + 1}"}
            self.bookings.append({"key": key, **refund})
            self.booked[key] = refund
            return 201, refund

    def outcome(self, key, permit):
        with self.lock:
            if key in self.booked:
                return {"outcome": "happened", "result": self.booked[key]}
            self.refusals.append({"key": key, "permit": permit})
            self.refused[key] = max(permit, self.refused.get(key, permit))
            return {"outcome": "did_not_happen"}


class Handler(BaseHTTPRequestHandler):
    book: Book

    def do_GET(self):
        order = ORDERS.get(self.path.removeprefix("/orders/"))
        if order is None:
            self.answer(404, {"error": "no such order"})
        else:
            self.answer(200, order)

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length) or b"{}")
        if self.path == "/refunds":
            key, permit = self.headers["Idempotency-Key"], self.headers["Aetheris-Permit"]
            if key is None or permit is None:
                self.answer(400, {"error": "Idempotency-Key or Aetheris-Permit is missing"})
                return
            status, refund = self.book.refund(key, permit_of(permit), body)
            if self.book.hold.is_set():
                self.book.hold.clear()
                self.close_connection = True  # booked, but not answered
                return
            self.answer(status, refund)
        elif self.path == "/refunds/outcome":
            self.answer(200, self.book.outcome(body["idempotency_key"], permit_of(body["permit"])))
        elif self.path == "/control/hold":
            self.book.hold.set()
            self.answer(200, {"hold": "the next refund is booked and not answered"})
        else:
            self.answer(404, {"error": "nothing here"})

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
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--book", default="bookings.jsonl")
    given = parser.parse_args()
    Handler.book = Book(given.book)
    server = ThreadingHTTPServer(("127.0.0.1", given.port), Handler)
    print(f"payments: listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
