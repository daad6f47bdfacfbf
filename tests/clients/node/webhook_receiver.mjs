// A receiver of webhooks as a customer would write it with npm's standardwebhooks, and what the tests ask it.
//
// TURNPIKE_NODE_MODULES (where standardwebhooks is installed) is in the environment. Says `listening on PORT` first.
// POST /hook verifies the raw body and answers 204, or 400 when the library refuses. For the tests: PUT /settings
// `{secret?, answer?}` (`answer` is a status for what was accepted), GET /seen, POST /verify `{secret, headers, body}`
// and POST /sign `{secret, id, at, body}` (`at` in seconds).

import { createServer } from "node:http";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.TURNPIKE_NODE_MODULES}/`);
const { Webhook } = require("standardwebhooks");

const settings = { secret: null, answer: 204 };
const seen = [];

/** What the library said: null when it accepts. */
function refusal(secret, headers, body) {
  try {
    new Webhook(secret).verify(body, headers);
    return null;
  } catch (error) {
    return error.message;
  }
}

function take(headers, body) {
  const names = ["webhook-id", "webhook-timestamp", "webhook-signature", "content-type"];
  const kept = Object.fromEntries(names.map((name) => [name, headers[name]]));
  const refused = refusal(settings.secret, kept, body);
  const status = refused === null ? settings.answer : 400;
  seen.push({ headers: kept, body, refused, status });
  return { status };
}

const routes = {
  "POST /hook": (body, headers) => take(headers, body),
  "PUT /settings": (body) => ({ status: 200, answer: Object.assign(settings, JSON.parse(body)) }),
  "GET /seen": () => ({ status: 200, answer: seen }),
  "POST /verify": (body) => {
    const asked = JSON.parse(body);
    return { status: 200, answer: { refused: refusal(asked.secret, asked.headers, asked.body) } };
  },
  "POST /sign": (body) => {
    const asked = JSON.parse(body);
    const signature = new Webhook(asked.secret).sign(asked.id, new Date(asked.at * 1000), asked.body);
    return { status: 200, answer: { signature } };
  },
};

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const route = routes[`${request.method} ${request.url}`];
  const { status, answer } = route ? route(Buffer.concat(chunks).toString(), request.headers) : { status: 404 };
  response.writeHead(status, { "content-type": "application/json" });
  response.end(answer === undefined ? undefined : JSON.stringify(answer));
});
server.listen(0, "127.0.0.1", () => console.log(`listening on ${server.address().port}`));
