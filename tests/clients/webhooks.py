"""Webhooks as customers receive them: two receivers, each with a library that knows nothing of this service.

What must hold: both take every event as it comes, under the id that the events' list shows; both refuse a changed byte,
another time and an old one; after a rotation either secret verifies; what failed is shown and told again on demand.
"""

import base64
import contextlib
import json
import os
import re
import time
import urllib.error
import urllib.request

from common import Failed, process, say, wait_for

EVENTS = "/api/credits/webhooks/events"
ENDPOINTS = "/api/credits/webhooks/endpoints"
# What every call tells of.
TYPES = {"credits.burn.completed", "credits.balance.changed"}
# Both libraries allow five minutes.
TOO_OLD_SECS = 360
# A secret that nobody has.
FOREIGN = "whsec_" + base64.b64encode(bytes(32)).decode()


def ask(method, url, body=None, key=None):
    """One JSON request; gives the JSON of a good answer."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, method=method, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise Failed(f"{method} {url}: {error.code} {error.read().decode()}") from error


class Receiver:
    """A running receiver."""

    def __init__(self, name, url):
        self.name = name
        self.url = url
        self.endpoint = None
        self.secret = None

    def set(self, **settings):
        ask("PUT", self.url + "/settings", settings)

    def seen(self):
        return ask("GET", self.url + "/seen")

    def sign(self, secret, message, at, body):
        return ask("POST", self.url + "/sign", {"secret": secret, "id": message, "at": at, "body": body})["signature"]

    def refusal(self, secret, headers, body):
        """Why the library refuses; None when it accepts."""
        asked = {"secret": secret, "headers": headers, "body": body}
        return ask("POST", self.url + "/verify", asked)["refused"]

    def expect(self, what, secret, headers, body, words):
        found = self.refusal(secret, headers, body)
        if found != words:
            raise Failed(f"{self.name}: {what}: the library said {found!r}, and {words!r} was due")


@contextlib.contextmanager
def receiver(name, command, data, node_modules):
    log = data / f"{name}.log"
    with process(name, command, log, env=os.environ | {"TURNPIKE_NODE_MODULES": str(node_modules)}) as child:

        def port():
            if child.poll() is not None:
                raise Failed(f"the receiver {name} ended with {child.returncode}")
            found = re.search(r"listening on (\d+)", log.read_text())
            return found and found.group(1)

        yield Receiver(name, f"http://127.0.0.1:{wait_for(name, port)}")


def call(service, case):
    """A call, and the ids of the events that tell of it."""
    key, url = service["key"], service["url"]
    known = {event["id"] for event in ask("GET", url + EVENTS + "?limit=100", key=key)["data"]}
    body = {"model": case["model"], "max_tokens": 64, "messages": [{"role": "user", "content": case["text"]}]}
    ask("POST", url + "/api/wrapped/credits/v1/chat/completions", body, key)

    def told():
        events = ask("GET", url + EVENTS + "?limit=100", key=key)["data"]
        new = {event["id"]: event["type"] for event in events if event["id"] not in known}
        return new if TYPES <= set(new.values()) else None

    return wait_for("the call's events", told)


def accepted(receiver, ids):
    """The requests with these ids, once the receiver has verified and taken them all."""

    def took():
        good = {seen["headers"]["webhook-id"]: seen for seen in receiver.seen() if seen["status"] == 204}
        return {event: good[event] for event in ids} if ids <= good.keys() else None

    return wait_for(f"{receiver.name} with {sorted(ids)}", took)


def refuses(receiver, request):
    """The library accepts the recorded request, and nothing that differs from it."""
    secret, headers, body = receiver.secret, request["headers"], request["body"]
    message, at = headers["webhook-id"], int(headers["webhook-timestamp"])
    receiver.expect("the request itself", secret, headers, body, None)
    if receiver.sign(secret, message, at, body) not in headers["webhook-signature"].split(" "):
        raise Failed(f"{receiver.name}: the library signs {message} differently")
    unsigned = "No matching signature found"
    place = len(body) // 2
    changed = body[:place] + ("x" if body[place] != "x" else "y") + body[place + 1 :]
    receiver.expect("a changed byte", secret, headers, changed, unsigned)
    receiver.expect("another id", secret, headers | {"webhook-id": message[:-1] + "_"}, body, unsigned)
    receiver.expect("another time", secret, headers | {"webhook-timestamp": str(at + 1)}, body, unsigned)
    receiver.expect("a foreign secret", FOREIGN, headers, body, unsigned)
    old = headers | {"webhook-timestamp": str(int(time.time()) - TOO_OLD_SECS)}
    receiver.expect("an old time", secret, old, body, "Message timestamp too old")
    # Age alone: the signature is good.
    old["webhook-signature"] = receiver.sign(secret, message, int(old["webhook-timestamp"]), body)
    receiver.expect("an old request", secret, old, body, "Message timestamp too old")
    now = headers | {"webhook-timestamp": str(int(time.time()))}
    now["webhook-signature"] = receiver.sign(secret, message, int(now["webhook-timestamp"]), body)
    receiver.expect("the same of this moment", secret, now, body, None)


def rotates(service, receiver, case):
    """After a rotation both secrets verify what comes."""
    path = f"{service['url']}{ENDPOINTS}/{receiver.endpoint}/rotate-secret"
    new = ask("POST", path, {}, service["key"])["endpoint"]["secret"]
    if new == receiver.secret:
        raise Failed(f"{receiver.name}: the secret did not change")
    # The receiver still has the old one.
    for request in accepted(receiver, set(call(service, case))).values():
        headers, body = request["headers"], request["body"]
        if len(headers["webhook-signature"].split(" ")) != 2:
            raise Failed(f"{receiver.name}: two signatures were due: {headers}")
        receiver.expect("the old secret", receiver.secret, headers, body, None)
        receiver.expect("the new secret", new, headers, body, None)
        receiver.expect("a foreign secret", FOREIGN, headers, body, "No matching signature found")
    receiver.secret = new
    receiver.set(secret=new)
    accepted(receiver, set(call(service, case)))


def deliveries(service, receiver, event):
    shown = ask("GET", f"{service['url']}{EVENTS}/{event}", key=service["key"])["event"]
    return [attempt for attempt in shown["deliveries"] if attempt["endpoint_id"] == receiver.endpoint]


def replays(service, receiver, case):
    """What failed is shown, and told again when somebody asks."""
    receiver.set(answer=500)
    ids = sorted(call(service, case))

    def failed(event):
        attempts = deliveries(service, receiver, event)
        return attempts if attempts and attempts[0]["status"] == "failed" else None

    for event in ids:
        first = wait_for("the failed attempt", lambda: failed(event))[0]
        if (first["attempt"], first["http_status"], first["manual_replay"]) != (1, 500, False):
            raise Failed(f"{receiver.name}: the first attempt is shown as {first}")
    receiver.set(answer=204)
    for event in ids:
        path = f"{service['url']}{EVENTS}/{event}/replay"
        ask("POST", path, {"endpointId": receiver.endpoint}, service["key"])

        def replayed():
            attempts = deliveries(service, receiver, event)
            again = [attempt for attempt in attempts if attempt["manual_replay"]]
            return attempts if again and again[-1]["status"] == "succeeded" else None

        attempts = wait_for("the replay", replayed)
        if [attempt["attempt"] for attempt in attempts] != list(range(1, len(attempts) + 1)):
            raise Failed(f"{receiver.name}: the attempts have gaps: {attempts}")
    accepted(receiver, set(ids))
    say(f"{receiver.name}: {len(ids)} events failed with 500, were shown so, and were taken after a replay")


def exercise(service, receivers, case):
    for receiver in receivers:
        made = ask("POST", service["url"] + ENDPOINTS, {"url": receiver.url + "/hook"}, service["key"])["endpoint"]
        receiver.endpoint, receiver.secret = made["id"], made["secret"]
        receiver.set(secret=receiver.secret)
    told = call(service, case)
    for receiver in receivers:
        for event, request in accepted(receiver, set(told)).items():
            body = json.loads(request["body"])
            if (body["id"], body["type"]) != (event, told[event]):
                raise Failed(f"{receiver.name}: {event} came as {body}")
            refuses(receiver, request)
        say(f"{receiver.name}: took {sorted(told.values())}; refused a changed byte and what is {TOO_OLD_SECS} s old")
    for receiver in receivers:
        rotates(service, receiver, case)
        say(f"{receiver.name}: after a rotation both secrets verified")
    for receiver in receivers:
        replays(service, receiver, case)
        refused = [seen["refused"] for seen in receiver.seen() if seen["refused"]]
        if refused:
            raise Failed(f"{receiver.name}: real requests were refused: {refused}")
