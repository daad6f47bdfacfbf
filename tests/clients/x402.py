"""Calls that wallets pay for by themselves: unmodified x402 and MPP clients, a real facilitator, a chain on loopback.

What must hold: every client gets its answer and pays for it once, whatever fails; the chain, our receipts and our
ledger say the same; a call that is repeated under its caller's own id costs nothing again.
"""

import base64
import contextlib
import json
import os
import subprocess
import uuid

import x402_faults
from common import Failed, say
from x402_books import LIST_MODELS_PRICE, Books, check_body
from x402_rig import HERE, MODELS, Provider, Service, Tools, ask, chain, facilitator, settings, unpack

# The test of our own client of the facilitator and reader of the chain.
READER_TEST = "payments::rig_tests::the_official_facilitator_is_paid_and_the_chain_read"
# It may have to be compiled.
READER_SECS = 900

# Bodies as clients send them, by operation.
JOBS = {
    "list-models": "{}",
    "chat": json.dumps({"model": MODELS[0], "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]}),
    "fim": json.dumps({"model": MODELS[1], "max_tokens": 64, "prompt": "fn main() {", "suffix": "}"}),
}


def pay_all(wallets, books, service):
    """Every client pays every operation, and again under an id of its own, where the second time costs nothing."""
    prices = {}
    for name, post in wallets:
        for operation, body in JOBS.items():
            url = f"{service.url}/vendor/{operation}"
            most, since = maximum(url, body), books.mark("payer")
            receipt = books.check(post(url, body, {}), operation, since)
            prices.setdefault(operation, set()).add((receipt["amount"], receipt["maxAmount"], most))
            own, since = {"x-svc-request-id": str(uuid.uuid4())}, books.mark("payer")
            once = post(url, body, own)
            books.check(once, operation, since)
            since = books.mark("payer")
            again = post(url, body, own)
            books.check(again, operation, since, paid=False)
            same_answer(name, once, again)
    if any(len(found) != 1 or found != {(paid, most, most) for paid, most, _ in found} for found in prices.values()):
        raise Failed(f"the same call had several prices, or another maximum than it was told: {prices}")
    say(f"paid and repeated each operation: {', '.join(name for name, _ in wallets)}")
    for operation, [(paid, most, _)] in prices.items():
        say(f"  {operation}: {paid} µUSD of the authorised {most}")


def maximum(url, body):
    """What the service wants to be authorised."""
    answer = ask("POST", url, body, {"content-type": "application/json"})
    if answer.status != 402:
        raise Failed(f"402 was expected: {answer}")
    return unpack(answer.headers["payment-required"])["accepts"][0]["amount"]


def same_answer(name, once, again):
    kept = ("payment-response", "x-svc-receipt-id", "x-svc-request-id")
    if once.body != again.body or any(once.headers[header] != again.headers[header] for header in kept):
        raise Failed(f"{name}: a repeated call was answered with {again}, first with {once}")


def check_poor(client, books, service, rig, provider):
    """Who has no ether and approved nothing pays with a permit; who has no tokens is refused before any work."""
    since = books.mark("freshPayer")
    answer = client.post(f"{service.url}/vendor/chat", JOBS["chat"], {}, payer="freshPayer")
    receipt = books.check(answer, "chat", since)
    say(f"a payer without ether and without an approval paid {receipt['amount']} µUSD")
    seen, since = len(provider.seen), rig.height()
    for operation in ("list-models", "chat"):
        answer = client.post(f"{service.url}/vendor/{operation}", JOBS[operation], {}, payer="brokePayer")
        reason = (unpack(answer.headers.get("payment-required")) or {}).get("error")
        if answer.status != 402 or not reason:
            raise Failed(f"a payer without tokens was answered with {answer}")
    if len(provider.seen) != seen or rig.payments(since):
        raise Failed("a payer without tokens was served")
    say(f"a payer without tokens is refused: {reason}")


def check_mpp(client, books, service):
    """npm `mppx` pays list-models, once under an id of its own."""
    url, own, since = f"{service.url}/vendor/list-models", str(uuid.uuid4()), books.mark("payer")
    first = client.post(url, "{}", {"x-svc-request-id": own})
    books.check(first, "list-models", since)
    packed = first.headers["payment-receipt"]
    receipt = json.loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
    if receipt["reference"] != unpack(first.headers["payment-response"])["transaction"]:
        raise Failed(f"the receipts differ: {receipt}")
    since = books.mark("payer")
    again = client.post(url, "{}", {"x-svc-request-id": own})
    books.check(again, "list-models", since, paid=False)
    same_answer("mppx", first, again)
    say("mppx paid and repeated list-models")


def validate_mpp(tools, key, books, service, rig):
    """`mppx validate` tries what a server has to do; it pays once."""
    since = rig.height()
    command = ["node", tools.modules / "mppx" / "dist" / "bin.js", "validate", service.url, "--output-json", "--yes"]
    env = tools.environment(PAYER=key, MPPX_CONFIG=str(HERE / "mppx_config.mjs"), HOME=str(tools.data))
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    try:
        found = json.loads(ended.stdout)
    except ValueError as error:
        raise Failed(f"mppx validate said {ended.stdout} {ended.stderr}") from error
    places = [found["discovery"]["checks"]]
    places += [place[phase] for place in found["endpoints"] for phase in ("challenge", "errorHandling", "payment")]
    for check in (check for place in places for check in place):
        if check["severity"] in ("fail", "warn", "suggested"):
            say(f"mppx validate: {check['severity']}: {check['label']} ({check.get('detail')})")
    if ended.returncode != 0 or found["summary"]["failed"]:
        raise Failed(f"mppx validate ended with {ended.returncode}: {found['summary']}")
    paid = rig.payments(since)
    if [amount for _, amount in paid] != [LIST_MODELS_PRICE]:
        raise Failed(f"mppx validate was to pay once: {paid}")
    # It does not show our receipt.
    books.amounts[paid[0][0]] = LIST_MODELS_PRICE
    say(f"mppx validate: {found['summary']}")


def wallets_of(fetch, python):
    """The three clients of x402: what they are, and how they post."""
    return [
        ("@x402/fetch", fetch.post),
        ("x402 with httpx", lambda *words: python.post(*words, do="httpx")),
        ("x402 with requests", lambda *words: python.post(*words, do="requests")),
    ]


def exercise(binary, data, env, node_modules, python_path):
    """Everything over the real facilitator and chain. The service keeps its books in `data`."""
    tools = Tools(node_modules, python_path, data)
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        rig, keys = enter(chain(tools))
        payers = {name: key for name, key in keys.items() if name.endswith("ayer")}
        fetch = enter(tools.fetch_client(payers, rig.url))
        python = enter(tools.python_client(keys["payer"]))
        mpp = enter(tools.mpp_client(keys["payer"]))
        settler = enter(facilitator(tools, rig.url, keys["facilitator"]))
        provider = enter(Provider())
        service = enter(Service(binary, data, env, settings(provider.url, settler.url, rig.url)))
        books = Books(service, rig)
        pay_all(wallets_of(fetch, python), books, service)
        check_poor(fetch, books, service, rig, provider)
        check_mpp(mpp, books, service)
        validate_mpp(tools, keys["payer"], books, service, rig)
        x402_faults.exercise(fetch, books, service, rig, settler, provider)
        books.close()


def try_simulated(service, data, node_modules, python_path):
    """The same clients pay `turnpike dev`, with the key that it gives."""
    tools, key = Tools(node_modules, python_path, data), service["env"]["TURNPIKE_X402_PAYER_KEY"]
    with tools.fetch_client({"payer": key}) as fetch, tools.python_client(key) as python:
        for name, post in wallets_of(fetch, python):
            for operation, body in JOBS.items():
                own = str(uuid.uuid4())
                answers = [post(f"{service['url']}/vendor/{operation}", body, {"x-svc-request-id": own}) for _ in "12"]
                for answer in answers:
                    paid = unpack(answer.headers.get("payment-response")) or {}
                    if answer.status != 200 or paid.get("success") is not True:
                        raise Failed(f"{name}: {operation} was answered with {answer}")
                    if answer.headers.get("x-svc-simulated") != "true":
                        raise Failed(f"{name}: nothing says that {operation} was simulated: {answer.headers}")
                    check_body(operation, json.loads(answer.body))
                same_answer(name, *answers)
    say("the same clients paid and repeated each operation at turnpike dev, simulated")


def try_reader(data, node_modules, python_path, repository):
    """Our client of the facilitator and our reader of the chain by themselves: a test of the crate that needs both."""
    tools = Tools(node_modules, python_path, data)
    command = ["cargo", "test", "--quiet", "--workspace", "--all-features", "--lib", "--", "--ignored", READER_TEST]
    with chain(tools) as (rig, keys), facilitator(tools, rig.url, keys["facilitator"]) as settler:
        env = os.environ | {"RIG_RPC": rig.url, "RIG_FACILITATOR": settler.url}
        ended = subprocess.run(
            command, cwd=repository, env=env, capture_output=True, text=True, timeout=READER_SECS, check=False
        )
    if ended.returncode != 0 or "1 passed" not in ended.stdout:
        raise Failed(f"{READER_TEST} ended with {ended.returncode}: {ended.stdout[-3000:]} {ended.stderr[-2000:]}")
    say("our own reader of the chain knows open, paid, lost, withdrawn and expired payments apart")
