"""A receiver of webhooks as a customer would write it with PyPI's standardwebhooks, and what the tests ask it.

Says `listening on PORT` first. POST /hook verifies the raw body and answers 204, or 400 when the library refuses. For
the tests: PUT /settings `{secret?, answer?}` (`answer` is a status for what was accepted), GET /seen, POST /verify
`{secret, headers, body}` and POST /sign `{secret, id, at, body}` (`at` in seconds).
"""

import json
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

SETTINGS = {"secret": None, "answer": 204}
SEEN = []


def refusal(secret, headers, body):
    """What the library said: None when it accepts."""
    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError as error:
        return str(error)
    return None


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self):
        return self.rfile.read(int(self.headers.get("content-length", 0))).decode()

    def answer(self, status, value=None):
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        if status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def take(self):
        body = self.body()
        names = ("webhook-id", "webhook-timestamp", "webhook-signature", "content-type")
        kept = {name: self.headers.get(name) for name in names}
        refused = refusal(SETTINGS["secret"], kept, body)
        status = SETTINGS["answer"] if refused is None else 400
        SEEN.append({"headers": kept, "body": body, "refused": refused, "status": status})
        self.answer(status)

    def do_GET(self):
        self.answer(200, SEEN)

    def do_PUT(self):
        SETTINGS.update(json.loads(self.body()))
        self.answer(200, SETTINGS)

    def do_POST(self):
        if self.path == "/hook":
            return self.take()
        asked = json.loads(self.body())
        if self.path == "/verify":
            return self.answer(200, {"refused": refusal(asked["secret"], asked["headers"], asked["body"])})
        at = datetime.fromtimestamp(asked["at"], tz=timezone.utc)
        self.answer(200, {"signature": Webhook(asked["secret"]).sign(asked["id"], at, asked["body"])})

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print(f"listening on {server.server_address[1]}", flush=True)
server.serve_forever()
