// The first owner in a real browser: the printed link, password, second factor, recovery codes, sign-out, sign-in and
// step-up, without any script on the pages.
//
// Against `turnpike dev`; from the environment: TURNPIKE_URL, TURNPIKE_FIRST_OWNER_URL (the printed link), CHROMIUM
// (default /usr/bin/chromium), SCREENSHOTS (a directory, optional). Exits 1 at the first surprise.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.TURNPIKE_NODE_MODULES ?? "./node_modules", "x.js"));
const { chromium } = require("playwright-core");

const base = process.env.TURNPIKE_URL;
const link = process.env.TURNPIKE_FIRST_OWNER_URL;
const login = "ada@example.com";
const password = "a quiet harbour at noon";

// A code of RFC 6238 out of a secret in base 32.
function code(secret, steps = 0) {
  const bits = [...secret.replaceAll(" ", "")]
    .map((letter) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".indexOf(letter).toString(2).padStart(5, "0"))
    .join("");
  const key = Buffer.from(bits.match(/.{8}/g).map((byte) => parseInt(byte, 2)));
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30000) + steps));
  const digest = createHmac("sha1", key).update(counter).digest();
  const number = digest.readUInt32BE(digest[19] & 15) & 0x7fffffff;
  return String(number % 1000000).padStart(6, "0");
}

const desktop = { width: 1280, height: 900 };
const mobile = { width: 390, height: 844 };

async function shoot(page, name) {
  if (!process.env.SCREENSHOTS) return;
  for (const [suffix, viewport, colorScheme] of [
    ["", desktop, "light"],
    ["-mobile", mobile, "light"],
    ["-dark", desktop, "dark"],
  ]) {
    await page.setViewportSize(viewport);
    await page.emulateMedia({ colorScheme });
    const path = join(process.env.SCREENSHOTS, `identity-${name}${suffix}.png`);
    await page.screenshot({ path, fullPage: true });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
    assert.equal(wide, false, `${name}${suffix} is wider than its window`);
  }
  await page.setViewportSize(desktop);
  await page.emulateMedia({ colorScheme: "light" });
}

const ask = (token) =>
  fetch(`${base}/api/credits/balance`, { headers: { authorization: `Bearer ${token}` } });

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run"],
});
try {
  const context = await browser.newContext({ viewport: desktop });
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(`${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => complaints.push(String(error)));

  // The link: a login and a password.
  await page.goto(link);
  await page.getByRole("heading", { name: "Join Demo" }).waitFor();
  await shoot(page, "join");
  await page.getByLabel("E-mail address or name").fill(login);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByLabel("The same password again").fill(`${password}.`);
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByRole("alert").waitFor();
  assert.equal(await page.getByLabel("E-mail address or name").inputValue(), login);
  await shoot(page, "join-refused");
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByLabel("The same password again").fill(password);
  await page.getByRole("button", { name: "Continue" }).click();

  // The second factor: a wrong code first, then the one an app would show.
  await page.getByRole("heading", { name: "Set up the second factor" }).waitFor();
  await page.getByRole("img", { name: "QR code of the secret" }).waitFor();
  await shoot(page, "enrolment");
  await page.getByText("Type it in instead").click();
  await shoot(page, "enrolment-by-hand");
  const secret = await page.locator("#secret").innerText();
  await page.getByLabel("Code from the app").fill(code(secret, 5));
  await page.getByRole("button", { name: "Confirm" }).click();
  await page.getByRole("alert").waitFor();
  await page.getByLabel("Code from the app").fill(code(secret));
  await page.getByRole("button", { name: "Confirm" }).click();

  // Recovery codes, and signed in.
  await page.getByRole("heading", { name: "Keep your recovery codes" }).waitFor();
  const recovery = await page.locator(".codes code").allInnerTexts();
  assert.equal(recovery.length, 10);
  await shoot(page, "recovery-codes");
  await page.getByRole("link", { name: "I have kept them" }).click();
  await page.getByRole("heading", { name: `Signed in as ${login}` }).waitFor();
  await page.getByText("Demo").waitFor();
  await page.getByText("fresh", { exact: true }).waitFor();
  await shoot(page, "home");
  const first = await page.getByLabel("Session token").inputValue();
  assert.equal((await ask(first)).status, 200);
  const [cookie] = await context.cookies(`${base}/identity`);
  assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.path], [true, "Strict", "/"]);
  // The browser sends it there, and nobody looks at it.
  assert.equal((await context.request.get(`${base}/api/credits/balance`)).status(), 401);

  // Signed out, here and for the API.
  await page.getByRole("button", { name: "Sign out everywhere" }).click();
  await page.getByRole("heading", { name: "Signed out" }).waitFor();
  await shoot(page, "signed-out");
  assert.equal((await ask(first)).status, 401);
  const gone = await page.goto(link);
  assert.equal(gone.status(), 404);
  await shoot(page, "link-used");

  // In again: a wrong password, then both factors.
  await page.goto(`${base}/identity`);
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  await shoot(page, "sign-in");
  const signIn = async (words) => {
    await page.getByLabel("E-mail address or name").fill("ADA@example.com");
    await page.getByLabel("Password").fill(words);
    await page.getByRole("button", { name: "Continue" }).click();
  };
  await signIn("not the password");
  await page.getByRole("alert").waitFor();
  await shoot(page, "sign-in-refused");
  await signIn(password);
  await page.getByRole("heading", { name: "Second factor" }).waitFor();
  await shoot(page, "code");
  await page.getByLabel("Code from your authenticator app").fill(code(secret, 1));
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: `Signed in as ${login}` }).waitFor();
  const second = await page.getByLabel("Session token").inputValue();
  assert.notEqual(second, first);
  assert.equal((await ask(second)).status, 200);

  // Step-up, with a recovery code.
  await page.getByRole("link", { name: "Confirm it is you" }).click();
  await page.getByRole("heading", { name: "Confirm it is you" }).waitFor();
  await shoot(page, "step-up");
  await page.getByLabel("Code from your authenticator app").fill(recovery[0]);
  await page.getByRole("button", { name: "Confirm" }).click();
  await page.getByRole("heading", { name: `Signed in as ${login}` }).waitFor();
  const third = await page.getByLabel("Session token").inputValue();
  const authTime = (token) => JSON.parse(Buffer.from(token.split(".")[1], "base64url")).auth_time;
  assert.ok(authTime(third) >= authTime(second));
  assert.equal((await ask(third)).status, 200);
  await page.getByText("9 ·").waitFor();

  // What was refused above is answered with an error status, and browsers complain about that alone.
  assert.deepEqual(complaints.filter((text) => !/status of (400|403|404)/.test(text)), []);
  console.log("identity: every step held");
} finally {
  await browser.close();
}
