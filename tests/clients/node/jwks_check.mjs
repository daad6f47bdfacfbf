// An end-user token, verified by jose with nothing but the service's published keys.
//
// Usage: jwks_check.mjs [TOKEN_FILE]
// TURNPIKE_URL, TURNPIKE_TOKEN_ISSUER, TURNPIKE_TOKEN_AUDIENCE, TURNPIKE_NODE_MODULES (where jose is installed) and,
// without a file, TURNPIKE_END_USER_TOKEN are in the environment. Prints one JSON object with the claims and exits 0,
// or says on standard error what was not as it should be.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// jose is an ES module, which only import() loads.
const require = createRequire(`${process.env.TURNPIKE_NODE_MODULES}/`);
const jose = await import(pathToFileURL(require.resolve("jose")));
const { version } = require("jose/package.json");

const [file] = process.argv.slice(2);
const token = (file ? readFileSync(file, "utf8") : (process.env.TURNPIKE_END_USER_TOKEN ?? "")).trim();
const issuer = process.env.TURNPIKE_TOKEN_ISSUER;
const audience = process.env.TURNPIKE_TOKEN_AUDIENCE;

function check(condition, ...what) {
  if (!condition) {
    console.error(`jwks_check.mjs: ${what.map((part) => (typeof part === "string" ? part : JSON.stringify(part))).join(" ")}`);
    process.exit(1);
  }
}
check(issuer && audience, "which issuer and which audience?");
check(token, "which token?");

const address = new URL("/.well-known/jwks.json", process.env.TURNPIKE_URL);
const keys = jose.createRemoteJWKSet(address, { timeoutDuration: 30_000 });
const verified = (text, more) =>
  jose.jwtVerify(text, keys, {
    algorithms: ["EdDSA"],
    typ: "end-user+jwt",
    issuer,
    audience,
    requiredClaims: ["sub", "iat", "exp", "jti", "tid", "scp"],
    ...more,
  });

/** A library that accepts everything would prove nothing. */
async function refused(text, more, code) {
  const found = await verified(text, more).then(
    () => "accepted",
    (error) => error.code,
  );
  check(found === code, "expected", code, "found", found);
}

const { payload, protectedHeader } = await verified(token, {});
check(payload.exp - payload.iat >= 60 && payload.exp - payload.iat <= 3600, "lifetime", payload);

const at = token.lastIndexOf(".") + 1;
const other = token.slice(0, at) + (token[at] === "A" ? "B" : "A") + token.slice(at + 1);
await refused(other, {}, "ERR_JWS_SIGNATURE_VERIFICATION_FAILED");
await refused(token, { issuer: `${issuer}x` }, "ERR_JWT_CLAIM_VALIDATION_FAILED");
await refused(token, { audience: `${audience}x` }, "ERR_JWT_CLAIM_VALIDATION_FAILED");

console.log(
  JSON.stringify({
    client: `node jose ${version}`,
    keys: keys.jwks().keys.map((key) => key.kid),
    kid: protectedHeader.kid,
    claims: payload,
  }),
);
