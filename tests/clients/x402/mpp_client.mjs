// npm `mppx` as it is; one JSON line in, one out: {"do": "pay", "url", "body", "headers"}
//
//   PAYER=0x… TURNPIKE_NODE_MODULES=… node mpp_client.mjs

import { answerLines, load, plain } from './lines.mjs';
import config from './mppx_config.mjs';

const { Mppx } = await load('mppx/client');
const client = Mppx.create({ methods: config.methods, polyfill: false });

await answerLines({
  pay: async ({ url, body, headers }) => plain(await client.fetch(url, { method: 'POST', headers, body })),
});
