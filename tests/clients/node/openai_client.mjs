// The OpenAI SDK for Node.js against a running service: only the base URL and the key are ours.
//
// Usage: openai_client.mjs CASE, with the CASE of ../python/openai_client.py (without its faults).
// TURNPIKE_URL, TURNPIKE_SECRET_KEY and TURNPIKE_NODE_MODULES (where the SDK is installed) are in the
// environment. Prints one JSON object and exits 0, or says on standard error what was not as it should be.
// Money is compared as whole millionths of a dollar, in BigInt.

import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { isDeepStrictEqual } from "node:util";

const require = createRequire(`${process.env.TURNPIKE_NODE_MODULES}/`);
const { default: OpenAI } = require("openai");
const { VERSION } = require("openai/version");

const url = process.env.TURNPIKE_URL;
const key = process.env.TURNPIKE_SECRET_KEY;
const testCase = JSON.parse(process.argv[2]);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function check(condition, ...what) {
  if (!condition) {
    const words = what.map((part) =>
      typeof part === "string" ? part : JSON.stringify(part, (_, value) => (typeof value === "bigint" ? `${value}` : value)),
    );
    console.error(`openai_client.mjs: ${words.join(" ")}`);
    process.exit(1);
  }
}

/** A decimal string as an integer with `places` decimal places. */
function exact(text, places) {
  const [whole, fraction = ""] = text.split(".");
  check(/^[0-9]+$/.test(whole) && fraction.length <= places, "not a decimal of", String(places), "places:", text);
  return BigInt(whole + fraction.padEnd(places, "0"));
}
const usd = (text) => exact(text, 6);
// A thousand credits are a dollar.
const credits = (text) => exact(text, 3);

async function get(path) {
  const response = await fetch(url + path, { headers: { Authorization: `Bearer ${key}` } });
  check(response.ok, path, String(response.status));
  return response.json();
}

/** The settled balance of the pool, when nothing is reserved any more. */
async function balance() {
  for (let attempt = 0; attempt < 100; attempt += 1) {
    const shown = await get("/api/credits/balance");
    if (shown.reservedUsd === "0") {
      check(shown.availableUsd === shown.usd, "available differs from settled", shown);
      check(credits(shown.credits) === usd(shown.usd), "credits are not exact", shown);
      return usd(shown.usd);
    }
    await pause(50);
  }
  return check(false, "credits stay reserved");
}

async function finishedCall(id) {
  for (let attempt = 0; attempt < 200; attempt += 1) {
    const { call } = await get(`/api/credits/calls/${id}`);
    if (call.finishedAt !== null) return call;
    await pause(50);
  }
  return check(false, "the call does not end", id);
}

function moneyHeaders(headers) {
  const cost = usd(headers.get("x-svc-cost-usd"));
  check(credits(headers.get("x-svc-credits-charged")) === cost, "charged credits and cost differ");
  check(/^[0-9a-f-]{36}$/.test(headers.get("x-svc-call-id")), "call id", headers.get("x-svc-call-id"));
  check(headers.get("cache-control").includes("no-store"), "a paid answer may be cached");
  return { cost, shown: credits(headers.get("x-svc-credits-balance")), call: headers.get("x-svc-call-id") };
}

const client = new OpenAI({ baseURL: `${url}/api/wrapped/credits/v1`, apiKey: key, maxRetries: 0, timeout: 60_000 });
const request = (more) => ({
  model: testCase.model,
  max_tokens: testCase.max_tokens,
  messages: [{ role: "user", content: testCase.prompt }],
  ...more,
});

async function unstreamed() {
  const before = await balance();
  const { data, response } = await client.chat.completions.create(request()).withResponse();
  const { cost, shown, call: id } = moneyHeaders(response.headers);
  const [choice] = data.choices;
  check(data.object === "chat.completion", "object", data.object);
  check(choice.message.role === "assistant" && typeof choice.message.content === "string", "choice", choice);
  check(["stop", "length"].includes(choice.finish_reason), "finish_reason", choice);
  check(data.usage.total_tokens === data.usage.prompt_tokens + data.usage.completion_tokens, "usage", data.usage);
  check(cost > 0n, "the completion was free");
  const after = await balance();
  check(after === before - cost && after === shown, "balance", { before, cost, after, shown });
  const call = await finishedCall(id);
  check(call.status === "completed" && usd(call.costUsd) === cost && !call.streamed, "call record", call);
  const { prompt_tokens: promptTokens, completion_tokens: completionTokens } = data.usage;
  return {
    costUsd: call.costUsd,
    balanceMicros: `${after}`,
    promptTokens,
    completionTokens,
    finishReason: choice.finish_reason,
  };
}

async function streamed(expected, withUsage) {
  const before = await balance();
  const options = withUsage ? { stream_options: { include_usage: true } } : {};
  const { data, response } = await client.chat.completions.create(request({ stream: true, ...options })).withResponse();
  check(response.headers.get("content-type").startsWith("text/event-stream"), "content type");
  const { cost: authorised, call: id } = moneyHeaders(response.headers);
  let [chunks, characters, usage, finish] = [0, 0, null, null];
  for await (const chunk of data) {
    chunks += 1;
    check(chunk.object === "chat.completion.chunk", "object", chunk.object);
    usage = chunk.usage ?? usage;
    for (const choice of chunk.choices) {
      characters += (choice.delta.content ?? "").length;
      finish = choice.finish_reason ?? finish;
    }
  }
  check(["stop", "length"].includes(finish), "finish_reason", finish);
  check(chunks >= 2, "one chunk is no stream");
  check(withUsage || usage === null, "a usage chunk that nobody asked for", usage);
  if (withUsage && testCase.stream_usage) {
    check(usage?.prompt_tokens === expected.promptTokens, "usage chunk", usage);
    check(usage?.completion_tokens === expected.completionTokens, "usage chunk", usage);
  }
  const call = await finishedCall(id);
  const [net, refunded] = [usd(call.costUsd), usd(call.refundedUsd)];
  check(call.status === "completed" && call.streamed, "call record", call);
  check(net === authorised - refunded, "net", { net, authorised, refunded });
  const after = await balance();
  check(after === before - net, "balance", { before, net, after });
  if (testCase.settlement === "fixed" || !testCase.stream_usage) {
    check(refunded === 0n, "a true-up without usage or against the setting", call);
  }
  return {
    authorisedUsd: call.chargedUsd,
    refundedUsd: call.refundedUsd,
    costUsd: call.costUsd,
    balanceMicros: `${after}`,
    chunks,
    characters,
    usageChunk: usage !== null,
    callId: id,
  };
}

/** The same key and body is one call, whatever the SDK does in between. */
async function replayed() {
  const headers = { "Idempotency-Key": `client-${randomUUID()}` };
  const first = await client.chat.completions.create(request(), { headers }).withResponse();
  const afterFirst = await balance();
  const second = await client.chat.completions.create(request(), { headers }).withResponse();
  check(second.response.headers.get("idempotent-replayed") === "true", "not a replay");
  check(isDeepStrictEqual(JSON.parse(JSON.stringify(first.data)), JSON.parse(JSON.stringify(second.data))), "another body");
  for (const name of ["x-svc-call-id", "x-svc-cost-usd", "x-svc-credits-charged"]) {
    check(first.response.headers.get(name) === second.response.headers.get(name), name, "differs in the replay");
  }
  check((await balance()) === afterFirst, "a replay was charged");
  return { callId: second.response.headers.get("x-svc-call-id"), replayed: true };
}

/** Errors arrive as the SDK's own exceptions, with our codes. */
async function refused() {
  const before = await balance();
  const stranger = new OpenAI({ baseURL: client.baseURL, apiKey: "svc_sk_live_wrong", maxRetries: 0 });
  const found = {};
  for (const [kind, call] of [
    [OpenAI.AuthenticationError, () => stranger.chat.completions.create(request())],
    [OpenAI.BadRequestError, () => client.chat.completions.create(request({ model: "no-such-model" }))],
  ]) {
    const raised = await call().then(
      () => null,
      (error) => error,
    );
    check(raised instanceof kind, "not the SDK's own error", String(raised));
    check(raised.headers.get("x-should-retry") === "false", "the SDK would try again", String(raised));
    found[raised.status] = String(raised.message);
  }
  check((await balance()) === before, "a refused call was charged");
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  check(models.includes(testCase.model), testCase.model, "is not in", models);
  return found;
}

const completion = await unstreamed();
console.log(
  JSON.stringify({
    client: `node openai ${VERSION}`,
    settlement: testCase.settlement,
    completion,
    stream: await streamed(completion, false),
    streamWithUsage: await streamed(completion, true),
    replay: await replayed(),
    refused: await refused(),
  }),
);
