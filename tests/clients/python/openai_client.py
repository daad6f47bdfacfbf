"""The OpenAI SDK for Python against a running service: only the base URL and the key are ours.

Usage: openai_client.py CASE, where CASE is a JSON object:
  model, prompt, max_tokens  what is asked
  settlement                 "fixed" or "usage", what the workspace is set to
  stream_usage               whether the provider reports usage in streams
  faults                     also send "cutoff", "busy" and "weather", which the provider answers with a stream
                             that breaks, a 429 and a tool call
TURNPIKE_URL and TURNPIKE_SECRET_KEY are in the environment. Prints one JSON object and exits 0, or says on
standard error what was not as it should be. Money is compared as exact decimals.
"""

import json
import os
import sys
import time
import urllib.request
import uuid
from decimal import Decimal

import openai

URL = os.environ["TURNPIKE_URL"]
KEY = os.environ["TURNPIKE_SECRET_KEY"]


def check(condition, *what):
    if not condition:
        raise SystemExit("openai_client.py: " + " ".join(str(part) for part in what))


def get(path):
    request = urllib.request.Request(URL + path, headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def balance():
    """The settled balance of the pool, when nothing is reserved any more."""
    for _ in range(100):
        shown = get("/api/credits/balance")
        if shown["reservedUsd"] == "0":
            check(shown["availableUsd"] == shown["usd"], "available differs from settled", shown)
            rate = shown["denomination"]["creditsPerDollar"]
            check(Decimal(shown["credits"]) == Decimal(shown["usd"]) * rate, "credits are not exact", shown)
            return Decimal(shown["usd"])
        time.sleep(0.05)
    check(False, "credits stay reserved", shown)


def finished_call(call_id):
    for _ in range(200):
        call = get(f"/api/credits/calls/{call_id}")["call"]
        if call["finishedAt"] is not None:
            return call
        time.sleep(0.05)
    check(False, "the call does not end", call)


def money_headers(headers):
    """What the response says about money; the balance header is in credits."""
    cost = Decimal(headers["x-svc-cost-usd"])
    charged = Decimal(headers["x-svc-credits-charged"])
    check(charged == cost * 1000, "charged credits", charged, "for", cost, "USD")
    uuid.UUID(headers["x-svc-call-id"])
    uuid.UUID(headers["x-request-id"])
    check("no-store" in headers["cache-control"], "a paid answer may be cached")
    return cost, Decimal(headers["x-svc-credits-balance"]) / 1000, headers["x-svc-call-id"]


def completion(client, case, **more):
    raw = client.chat.completions.with_raw_response.create(
        model=case["model"],
        max_tokens=case["max_tokens"],
        messages=[{"role": "user", "content": case["prompt"]}],
        **more,
    )
    return raw, raw.parse()


def unstreamed(client, case):
    before = balance()
    raw, answer = completion(client, case)
    cost, shown, call_id = money_headers(raw.headers)
    check(answer.object == "chat.completion", "object", answer.object)
    check(len(answer.choices) == 1, "choices", answer.choices)
    check(answer.choices[0].message.role == "assistant", "role", answer.choices[0])
    check(isinstance(answer.choices[0].message.content, str), "content", answer.choices[0])
    check(answer.choices[0].finish_reason in ("stop", "length"), "finish_reason", answer.choices[0])
    check(answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens, answer.usage)
    check(cost > 0, "the completion was free")
    after = balance()
    check(after == before - cost == shown, "balance", before, "-", cost, "is", after, "and was shown as", shown)
    call = finished_call(call_id)
    check(call["status"] == "completed" and Decimal(call["costUsd"]) == cost, "call record", call)
    check(call["streamed"] is False, "call record", call)
    return {
        "costUsd": str(cost),
        "balanceUsd": str(after),
        "promptTokens": answer.usage.prompt_tokens,
        "completionTokens": answer.usage.completion_tokens,
        "finishReason": answer.choices[0].finish_reason,
    }, answer


def streamed(client, case, expected, with_usage):
    before = balance()
    options = {"stream_options": {"include_usage": True}} if with_usage else {}
    raw = client.chat.completions.with_raw_response.create(
        model=case["model"],
        max_tokens=case["max_tokens"],
        messages=[{"role": "user", "content": case["prompt"]}],
        stream=True,
        **options,
    )
    check(raw.headers["content-type"].startswith("text/event-stream"), raw.headers["content-type"])
    authorised, _, call_id = money_headers(raw.headers)
    text, usage, finish, chunks = "", None, None, 0
    for chunk in raw.parse():
        chunks += 1
        check(chunk.object == "chat.completion.chunk", "object", chunk.object)
        if chunk.usage is not None:
            usage = chunk.usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    check(finish in ("stop", "length"), "finish_reason", finish)
    check(chunks >= 2, "one chunk is no stream")
    check(with_usage or usage is None, "a usage chunk that nobody asked for", usage)
    if with_usage and case["stream_usage"]:
        check(usage is not None, "the usage chunk that was asked for is missing")
        check(usage.prompt_tokens == expected.usage.prompt_tokens, "prompt tokens", usage)
        check(usage.completion_tokens == expected.usage.completion_tokens, "completion tokens", usage)
    call = finished_call(call_id)
    net = Decimal(call["costUsd"])
    refunded = Decimal(call["refundedUsd"])
    check(call["status"] == "completed" and call["streamed"] is True, "call record", call)
    check(net == authorised - refunded, "net", net, "of", authorised, "less", refunded)
    after = balance()
    check(after == before - net, "balance", before, "-", net, "is", after)
    if case["settlement"] == "fixed" or not case["stream_usage"]:
        check(refunded == 0, "a true-up without usage or against the setting", call)
    return {
        "authorisedUsd": str(authorised),
        "refundedUsd": str(refunded),
        "costUsd": str(net),
        "balanceUsd": str(after),
        "chunks": chunks,
        "characters": len(text),
        "usageChunk": usage is not None,
        "callId": call_id,
    }


def replayed(client, case):
    """The same key and body is one call, whatever the SDK does in between."""
    key = f"client-{uuid.uuid4()}"
    first, one = completion(client, case, extra_headers={"Idempotency-Key": key})
    after_first = balance()
    second, two = completion(client, case, extra_headers={"Idempotency-Key": key})
    check(second.headers.get("idempotent-replayed") == "true", "not a replay", dict(second.headers))
    check(one == two, "a replay with another body")
    for name in ("x-svc-call-id", "x-svc-cost-usd", "x-svc-credits-charged"):
        check(first.headers[name] == second.headers[name], name, "differs in the replay")
    check(balance() == after_first, "a replay was charged")
    return {"callId": second.headers["x-svc-call-id"], "replayed": True}


def refused(client, case):
    """Errors arrive as the SDK's own exceptions, with our codes."""
    before = balance()
    found = {}
    stranger = openai.OpenAI(base_url=client.base_url, api_key="svc_sk_live_wrong", max_retries=0)
    for name, error, call in (
        ("401", openai.AuthenticationError, lambda: completion(stranger, case)),
        ("400", openai.BadRequestError, lambda: completion(client, {**case, "model": "no-such-model"})),
    ):
        try:
            call()
            check(False, name, "was not raised")
        except error as raised:
            # The SDK keeps only the member `error` of a body; the whole of it is in the response.
            body = raised.response.json()
            check(body["success"] is False and body["message"] and body["requestId"], "body", body)
            check(raised.response.headers["x-should-retry"] == "false", "the SDK would try again", body)
            found[name] = body["code"]
    check(balance() == before, "a refused call was charged")
    models = [model.id for model in client.models.list()]
    check(case["model"] in models, case["model"], "is not in", models)
    return found


def faults(client, case):
    found = {}
    before = balance()
    try:
        completion(client, {**case, "prompt": "busy"})
        check(False, "a 429 of the provider did not arrive")
    except openai.APIStatusError as raised:
        body = raised.response.json()
        check(raised.status_code == 502 and body["code"] == "UPSTREAM_ERROR", raised.status_code, body)
        check(body["upstreamStatus"] == 429, body)
        check(raised.response.headers["x-svc-credits-charged"] == "0", dict(raised.response.headers))
        found["busy"] = body["code"]
    check(balance() == before, "a failed call was charged")

    raw = client.chat.completions.with_raw_response.create(
        model=case["model"],
        max_tokens=case["max_tokens"],
        messages=[{"role": "user", "content": "cutoff"}],
        stream=True,
    )
    authorised, _, call_id = money_headers(raw.headers)
    text, broke = "", False
    try:
        for chunk in raw.parse():
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
    except openai.APIError as raised:
        broke = True
        check(raised.code == "UPSTREAM_ERROR", "the error event says", raised.code, raised)
    check(broke, "a stream that broke ended like a whole one")
    call = finished_call(call_id)
    check(call["status"] == "interrupted", "call record", call)
    check(Decimal(call["refundedUsd"]) > 0, "what was not delivered was not credited back", call)
    check(Decimal(call["costUsd"]) == authorised - Decimal(call["refundedUsd"]), "call record", call)
    check(balance() == before - Decimal(call["costUsd"]), "balance after a broken stream", call)
    found["cutoff"] = {"delivered": len(text), "authorisedUsd": str(authorised), "costUsd": call["costUsd"]}

    before = balance()
    raw, answer = completion(client, {**case, "prompt": "weather"})
    cost, _, _ = money_headers(raw.headers)
    tool = answer.choices[0].message.tool_calls[0]
    check(tool.function.name == "get_weather", "tool call", tool)
    check(json.loads(tool.function.arguments) == {"city": "Paris"}, "tool call", tool)
    check(balance() == before - cost, "balance after a tool call")
    found["weather"] = tool.function.name
    return found


def main():
    case = json.loads(sys.argv[1])
    client = openai.OpenAI(base_url=f"{URL}/api/wrapped/credits/v1", api_key=KEY, max_retries=0, timeout=60)
    plain, answer = unstreamed(client, case)
    result = {
        "client": f"python openai {openai.__version__}",
        "settlement": case["settlement"],
        "completion": plain,
        "stream": streamed(client, case, answer, with_usage=False),
        "streamWithUsage": streamed(client, case, answer, with_usage=True),
        "replay": replayed(client, case),
        "refused": refused(client, case),
    }
    if case.get("faults"):
        result["faults"] = faults(client, case)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
