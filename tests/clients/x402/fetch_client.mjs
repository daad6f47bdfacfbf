// npm `@x402/fetch` as it is, with its own spending limits; one JSON line in, one out:
//
//   {"do": "pay", "url", "body", "headers"}        the whole call, paid when the server asks for it
//   {"do": "sign", "paymentRequired", "payer"}     only the payment's header, to be sent by hand
//   {"do": "addresses"}                            the payers' addresses
//
//   PAYERS='{"payer": "0x…"}' RPC=… TURNPIKE_NODE_MODULES=… node fetch_client.mjs       RPC may be empty

import { answerLines, load, plain } from './lines.mjs';

const { wrapFetchWithPayment, x402Client, x402HTTPClient } = await load('@x402/fetch');
const { ExactEvmScheme } = await load('@x402/evm/exact/client');
const { UptoEvmScheme } = await load('@x402/evm/upto/client');
const { createPublicClient, http } = await load('viem');
const { privateKeyToAccount } = await load('viem/accounts');
const { baseSepolia } = await load('viem/chains');

const { PAYERS, RPC } = process.env;
const reader = RPC && createPublicClient({ chain: baseSepolia, transport: http(RPC) });

const clients = {};
for (const [name, key] of Object.entries(JSON.parse(PAYERS))) {
  const account = privateKeyToAccount(key);
  const signer = { address: account.address, signTypedData: (data) => account.signTypedData(data) };
  // Without it nobody signs a permit for an approval that is missing.
  if (reader) signer.readContract = (call) => reader.readContract(call);
  const client = new x402Client();
  client.register('eip155:*', new ExactEvmScheme(signer)).register('eip155:*', new UptoEvmScheme(signer));
  clients[name] = { client, address: account.address, pay: wrapFetchWithPayment(fetch, client) };
}

await answerLines({
  pay: async ({ url, body, headers, payer = 'payer' }) =>
    plain(await clients[payer].pay(url, { method: 'POST', headers, body })),
  sign: async ({ paymentRequired, payer = 'payer' }) => {
    const by = new x402HTTPClient(clients[payer].client);
    const required = by.getPaymentRequiredResponse((name) =>
      name.toLowerCase() === 'payment-required' ? paymentRequired : undefined,
    );
    const payload = await by.createPaymentPayload(required);
    return { payload, headers: by.encodePaymentSignatureHeader(payload) };
  },
  addresses: () => Object.fromEntries(Object.entries(clients).map(([name, { address }]) => [name, address])),
});
