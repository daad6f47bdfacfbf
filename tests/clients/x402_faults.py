"""What fails around a paid call: each time one call of the provider, one payment, and an answer in the end."""

import base64
import collections
import concurrent.futures
import contextlib
import http.client
import json
import time
import urllib.parse
import uuid

from common import Failed, say, wait_for
from x402_rig import FUNDS, MODELS, PAY_TO, TRANSFER, ask, unpack

JSON = {"content-type": "application/json"}
AT_ONCE = 50
# How long an answer may be on its way, whatever happened.
PATIENCE_SECS = 30

Signed = collections.namedtuple("Signed", "url body request headers payload")


def refused(answer, status, code):
    body = json.loads(answer.body)
    if answer.status != status or body.get("code") != code:
        raise Failed(f"{status} {code} was expected: {answer}")


class Faults:
    def __init__(self, client, books, service, rig, facilitator, provider):
        self.client, self.books, self.service = client, books, service
        self.rig, self.facilitator, self.provider = rig, facilitator, provider

    def challenge(self, url, body):
        answer = ask("POST", url, body, JSON)
        if answer.status != 402:
            raise Failed(f"402 was expected: {answer}")
        return answer.headers

    def chat(self, what, payer, slow=False):
        """A chat's payment as the official client signs it, not sent yet; with a mark that the provider will see."""
        mark, url = f"{what} {uuid.uuid4()}", f"{self.service.url}/vendor/chat"
        messages = [{"role": "user", "content": f"{mark} slow" if slow else mark}]
        body = json.dumps({"model": MODELS[0], "max_tokens": 64, "messages": messages})
        asked = self.challenge(url, body)
        required, request = asked["payment-required"], asked["x-svc-request-id"]
        signed = self.client.ask("sign", paymentRequired=required, payer=payer)
        headers = JSON | {"x-svc-request-id": request} | signed["headers"]
        return mark, Signed(url, body, request, headers, signed["payload"])

    def send(self, signed):
        return ask("POST", signed.url, signed.body, signed.headers)

    def fetch(self, signed):
        """The answer, asked for by the request's id alone."""
        until = time.monotonic() + PATIENCE_SECS
        while time.monotonic() < until:
            answer = ask("POST", signed.url, signed.body, JSON | {"x-svc-request-id": signed.request})
            if answer.status != 202:
                return answer
            waiting = json.loads(answer.body)
            if waiting["requestId"] != signed.request or "retry-after" not in answer.headers:
                raise Failed(f"who waits is told {answer}")
            time.sleep(min(waiting["retryAfterMs"] / 1000, 0.5))
        raise Failed(f"no answer for {signed.request} after {PATIENCE_SECS} s")

    @contextlib.contextmanager
    def one_call(self, what, payer="payer", slow=False):
        """A signed chat; after the block the one in the list is answered, paid and carried out once."""
        since = self.books.mark(payer)
        mark, signed = self.chat(what, payer, slow)
        served = [signed]
        yield served
        answer = self.fetch(served[0])
        receipt = self.books.check(answer, "chat", since)
        if receipt["maxAmount"] != signed.payload["accepted"]["amount"]:
            raise Failed(f"another maximum was authorised than {receipt} says")
        self.check_provider(what, mark)
        say(f"{what}: answered, called once, {receipt['amount']} µUSD paid once")

    def check_provider(self, what, mark):
        calls = sum(mark in json.dumps(asked) for asked in self.provider.seen)
        if calls != 1:
            raise Failed(f"{what}: the provider was called {calls} times")
        if self.facilitator.stats()["faults"]:
            raise Failed(f"{what}: the fault was not reached")

    @contextlib.contextmanager
    def in_background(self, signed):
        """Sends while the block runs; the block gets the answer to come."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            yield pool.submit(self.send, signed)

    def settle_fails(self):
        with self.one_call("the facilitator fails at settle") as [signed]:
            self.facilitator.fault("settle", status=500)
            must(self.send(signed), 200, 202)

    def answer_lost(self):
        with self.one_call("settled, and the facilitator's answer lost") as [signed]:
            self.facilitator.fault("settle", lose=True)
            must(self.send(signed), 200, 202)

    def verify_fails(self):
        with self.one_call("the facilitator is down at verify") as [signed]:
            seen = len(self.provider.seen)
            self.facilitator.fault("verify", status=500)
            must(self.send(signed), 502)
            if len(self.provider.seen) != seen:
                raise Failed("the provider was called without a verdict")
            must(self.send(signed), 200)

    def payer_emptied(self):
        payer = self.rig.addresses["emptiedPayer"]
        with self.one_call("the payer is emptied between verify and settle", payer="emptiedPayer") as [signed]:
            before = self.facilitator.stats()
            self.facilitator.fault("settle", delayMs=1500)
            with self.in_background(signed) as sent:
                self.facilitator.await_asked("settle", before)
                # Not to us: what is counted is what was paid.
                self.rig.send(payer, TRANSFER, self.rig.addresses["facilitator"], FUNDS)
                answer = sent.result()
            for held in (answer, self.send(signed)):
                outcome = unpack(held.headers.get("payment-response"))
                if held.status != 402 or outcome["success"] is not False or b"choices" in held.body:
                    raise Failed(f"a refused settlement was answered with {held}")
            self.rig.send(self.rig.addresses["facilitator"], TRANSFER, payer, FUNDS)
        say(f"  meanwhile the answer was held back: {outcome.get('errorReason')}")

    def many_retries(self):
        with self.one_call(f"{AT_ONCE} retries at once", payer="busyPayer", slow=True) as [signed]:
            answers = self.at_once([signed] * AT_ONCE)
            for answer in answers:
                must(answer, 200, 202)
            bodies = {answer.body for answer in answers if answer.status == 200} | {self.send(signed).body}
            if len(bodies) != 1:
                raise Failed(f"retries were answered differently: {bodies}")

    def many_requests(self):
        """The payment's signature does not cover our terms: it is put under those of other requests."""
        with self.one_call(f"one payment for {AT_ONCE} requests", payer="busyPayer", slow=True) as served:
            url, body = served[0].url, served[0].body
            others = [self.under(served[0], self.challenge(url, body)) for _ in range(AT_ONCE - 1)]
            many = [*served, *others]
            answers = self.at_once(many)
            served[:] = [one for one, answer in zip(many, answers) if answer.status in (200, 202)]
            if len(served) != 1:
                raise Failed(f"{len(served)} requests were served for one payment")
            for answer in answers:
                if answer.status not in (200, 202):
                    refused(answer, 409, "REQUEST_ID_CONFLICT")

    def under(self, signed, headers):
        """The same signature in the terms of another challenge."""
        required = unpack(headers["payment-required"])
        accepted = required["accepts"][0]
        payload = signed.payload | {"accepted": accepted, "resource": required["resource"]}
        if "extensions" in payload:
            payload["extensions"] = required.get("extensions", {})
        packed = base64.b64encode(json.dumps(payload).encode()).decode()
        request = headers["x-svc-request-id"]
        more = {"x-svc-request-id": request, "PAYMENT-SIGNATURE": packed}
        return signed._replace(request=request, headers=JSON | more, payload=payload)

    def at_once(self, many):
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(self.send, many))

    def client_gone(self):
        with self.one_call("the client is gone before the answer", slow=True) as [signed]:
            parts, seen = urllib.parse.urlsplit(signed.url), len(self.provider.seen)
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
            connection.request("POST", parts.path, signed.body, signed.headers)
            wait_for("the provider's call", lambda: len(self.provider.seen) > seen)
            connection.close()

    def killed_settling(self):
        with self.one_call("killed while it settles") as [signed]:
            before = self.facilitator.stats()
            self.facilitator.fault("settle", delayMs=2000)
            self.kill(signed, lambda: self.facilitator.await_asked("settle", before))

    def killed_verifying(self):
        with self.one_call("killed while it verifies") as [signed]:
            before = self.facilitator.stats()
            self.facilitator.fault("verify", delayMs=1000)
            self.kill(signed, lambda: self.facilitator.await_asked("verify", before))
            must(self.send(signed), 200)

    def killed_working(self):
        """Nobody knows what the provider did, so it is not asked again, and nobody pays."""
        what, since, seen = "killed while the provider works", self.books.mark("payer"), len(self.provider.seen)
        mark, signed = self.chat(what, "payer", slow=True)
        self.kill(signed, lambda: wait_for("the provider's call", lambda: len(self.provider.seen) > seen))
        refused(self.fetch(signed), 409, "REQUEST_FAILED")
        refused(self.send(signed), 409, "REQUEST_FAILED")
        self.check_provider(what, mark)
        if self.rig.payments(since.height):
            raise Failed("a call was paid that nobody answered")
        say(f"{what}: not answered, called once, nothing paid")

    def kill(self, signed, reached):
        with self.in_background(signed) as sent:
            reached()
            self.service.kill()
            if not isinstance(sent.exception(), (OSError, http.client.HTTPException)):
                raise Failed(f"a killed service answered: {sent.result()}")
        self.service.start()


def must(answer, *statuses):
    if answer.status not in statuses:
        raise Failed(f"{' or '.join(map(str, statuses))} was expected: {answer}")


def exercise(client, books, service, rig, facilitator, provider):
    faults = Faults(client, books, service, rig, facilitator, provider)
    faults.settle_fails()
    faults.answer_lost()
    faults.verify_fails()
    faults.payer_emptied()
    faults.many_retries()
    faults.many_requests()
    faults.client_gone()
    faults.killed_settling()
    faults.killed_verifying()
    faults.killed_working()
