// A customer's whole life in a real browser: token, checkout page, spending, an empty balance, retirement.
//
// Against `turnpike dev`; from the environment: TURNPIKE_URL, TURNPIKE_SECRET_KEY, TURNPIKE_SESSION_TOKEN,
// CHROMIUM (default /usr/bin/chromium), SCREENSHOTS (a directory, optional). Exits 1 at the first surprise.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.TURNPIKE_NODE_MODULES ?? "./node_modules", "x.js"));
const { chromium } = require("playwright-core");

const base = process.env.TURNPIKE_URL;
const key = process.env.TURNPIKE_SECRET_KEY;
const user = `browser/${Date.now()}`;
const path = `/api/credits/end-users/${encodeURIComponent(user)}`;

async function ask(method, route, bearer, body, headers = {}) {
  const answer = await fetch(base + route, {
    method,
    headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json", ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  const json = answer.headers.get("content-type")?.startsWith("application/json");
  return { status: answer.status, headers: answer.headers, body: json ? JSON.parse(text) : text };
}

const once = () => ({ "idempotency-key": crypto.randomUUID() });
// A stream costs its authorised amount, so that a few of them spend a balance.
const chat = (bearer, text) =>
  ask("POST", "/api/wrapped/credits/v1/chat/completions", bearer, {
    model: "vendor-v4-pro",
    max_tokens: 300000,
    stream: true,
    messages: [{ role: "user", content: text }],
  }, once());

async function shoot(page, name) {
  if (process.env.SCREENSHOTS) {
    await page.screenshot({ path: join(process.env.SCREENSHOTS, `${name}.png`), fullPage: true });
  }
}

async function topUp(token, usd, more = {}) {
  const opened = await ask("POST", "/api/credits/me/topups", token, { usd, ...more }, once());
  assert.equal(opened.status, 200, JSON.stringify(opened.body));
  assert.match(opened.body.sessionId, /^cs_/);
  return opened.body;
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run"],
});
try {
  const minted = await ask("POST", `${path}/tokens`, key, { expiresIn: 900 });
  assert.equal(minted.status, 201, JSON.stringify(minted.body));
  const token = minted.body.token;

  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const complaints = [];
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(`${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => complaints.push(String(error)));

  // A card that is refused credits nothing.
  const refused = await topUp(token, "3");
  await page.goto(refused.url);
  await page.getByRole("button", { name: "Decline" }).click();
  await page.waitForURL(/\/result$/);
  await shoot(page, "declined");
  assert.equal((await ask("GET", `/api/credits/me/topups/${refused.sessionId}`, token)).body.status, "failed");
  assert.equal((await ask("GET", "/api/credits/me/balance", token)).body.usd, "0");

  // One that is taken does, once, however often the button is pressed.
  const opened = await topUp(token, "5", { successUrl: `${base}/healthz?paid={CHECKOUT_SESSION_ID}` });
  await page.goto(opened.url);
  await page.getByText("TEST MODE").waitFor();
  await shoot(page, "checkout");
  await page.setViewportSize({ width: 390, height: 844 });
  await shoot(page, "checkout-mobile");
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.getByRole("button", { name: `Pay $${opened.quote.totalUsd}` }).click();
  await page.waitForURL(/healthz/);
  assert.equal(new URL(page.url()).searchParams.get("paid"), opened.sessionId);
  await page.goto(`${base}/checkout/${opened.sessionId}`);
  await page.waitForURL(/\/result$/);
  await shoot(page, "completed");
  const again = await fetch(`${opened.url}/pay`, { method: "POST", redirect: "manual" });
  assert.equal(again.status, 303);
  assert.equal((await ask("GET", "/api/credits/me/balance", token)).body.usd, "5");
  // The pages are shown in their own style: the policy blocks nothing of theirs. (The shop's page is none of them.)
  assert.deepEqual(complaints.filter((text) => !text.endsWith("/favicon.ico")), []);

  // Spent until there is too little, and then told what is missing.
  let spent = 0;
  let answer;
  for (let count = 0; count < 200; count += 1) {
    answer = await chat(token, `hello ${count}`);
    if (answer.status !== 200) break;
    spent += Number(answer.headers.get("x-svc-credits-charged"));
    assert.equal(answer.headers.get("x-svc-cost-usd"), null);
  }
  assert.equal(answer.status, 402, JSON.stringify(answer.body).slice(0, 500));
  assert.equal(answer.body.code, "INSUFFICIENT_CREDITS");
  assert.ok(Number(answer.body.requiredCredits) > Number(answer.body.availableCredits));
  assert.ok(spent > 0);
  console.log(`402 says: ${JSON.stringify(answer.body)}`);

  // The rest goes back to the pool, then the user is retired, and nothing works any more.
  const left = (await ask("GET", "/api/credits/me/balance", token)).body.usd;
  if (Number(left) > 0) {
    const blocked = await ask("DELETE", path, process.env.TURNPIKE_SESSION_TOKEN);
    assert.equal(blocked.status, 409, JSON.stringify(blocked.body));
    assert.equal(blocked.body.blockers[0].type, "balance");
    const back = await ask("POST", `${path}/deallocate`, key, { usd: left }, once());
    assert.equal(back.status, 200, JSON.stringify(back.body));
  }
  const retired = await ask("DELETE", path, process.env.TURNPIKE_SESSION_TOKEN);
  assert.equal(retired.status, 200, JSON.stringify(retired.body));
  assert.deepEqual([retired.body.retired, retired.body.alreadyRetired, retired.body.revokedTokens], [true, false, 1]);
  console.log(`retired: ${JSON.stringify(retired.body)}`);
  for (const [what, reply, status] of [
    ["chat", await chat(token, "again"), 401],
    ["balance", await ask("GET", "/api/credits/me/balance", token), 401],
    ["top-up", await ask("POST", "/api/credits/me/topups", token, { usd: "5" }, once()), 401],
    ["token", await ask("POST", `${path}/tokens`, key, {}), 403],
    ["allocation", await ask("POST", `${path}/allocate`, key, { usd: "1" }, once()), 403],
  ]) {
    assert.equal(reply.status, status, `${what}: ${JSON.stringify(reply.body)}`);
  }
  const second = await ask("DELETE", path, process.env.TURNPIKE_SESSION_TOKEN);
  assert.deepEqual([second.status, second.body.alreadyRetired], [200, true]);
  console.log("checkout: every step held");
} finally {
  await browser.close();
}
