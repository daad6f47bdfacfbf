// What the scripts here stand on: modules from the tests' tools, and a process that answers one JSON line with another.

import { createRequire } from 'node:module';
import path from 'node:path';
import readline from 'node:readline';
import { pathToFileURL } from 'node:url';

const require = createRequire(path.join(process.env.TURNPIKE_NODE_MODULES, 'package.json'));

export const load = (name) => import(pathToFileURL(require.resolve(name)).href);

/** Says that it is ready, then answers each `{"do": NAME, …}` with what the handler gives, or with `{"error"}`. */
export async function answerLines(handlers) {
  const tell = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
  tell({ ready: true });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    try {
      tell(await handlers[asked.do](asked));
    } catch (error) {
      tell({ error: String(error.message ?? error) });
    }
  }
}

/** An answer with its headers and its body in base64, so that nothing is lost. */
export async function plain(response) {
  const body = Buffer.from(await response.arrayBuffer()).toString('base64');
  return { status: response.status, headers: Object.fromEntries(response.headers), body };
}
