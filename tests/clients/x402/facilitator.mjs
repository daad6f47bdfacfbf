// The official facilitator on loopback. It counts what it is asked and can be told to misbehave:
//
//   POST /rig/fault {"op": "settle", "status": 500, "times": 1}      answers with this status
//                   {"op": "settle", "lose": true, "times": 1}       does the work and drops the connection
//                   {"op": "settle", "delayMs": 2000, "times": 1}    waits first
//   GET /rig/stats  how often each operation was asked, and how many faults are still to come
//
//   PORT=… RPC=… FACILITATOR_KEY=… TURNPIKE_NODE_MODULES=… node facilitator.mjs

import http from 'node:http';
import { load } from './lines.mjs';

const { x402Facilitator } = await load('@x402/core/facilitator');
const { toFacilitatorEvmSigner } = await load('@x402/evm');
const { ExactEvmScheme } = await load('@x402/evm/exact/facilitator');
const { UptoEvmScheme } = await load('@x402/evm/upto/facilitator');
const { createPublicClient, createWalletClient, http: rpc } = await load('viem');
const { privateKeyToAccount } = await load('viem/accounts');
const { baseSepolia } = await load('viem/chains');

const { PORT, RPC, FACILITATOR_KEY } = process.env;
const NETWORK = 'eip155:84532';

const account = privateKeyToAccount(FACILITATOR_KEY);
const chain = { chain: baseSepolia, transport: rpc(RPC), pollingInterval: 50 };
const reader = createPublicClient(chain);
const writer = createWalletClient({ ...chain, account });
// One account sends, so one transaction is sent at a time.
let queue = Promise.resolve();
const signer = toFacilitatorEvmSigner({
  address: account.address,
  readContract: (call) => reader.readContract({ ...call, account: account.address }),
  verifyTypedData: (data) => reader.verifyTypedData(data),
  writeContract: (call) => (queue = queue.catch(() => {}).then(() => writer.writeContract(call))),
  sendTransaction: (transaction) => writer.sendTransaction(transaction),
  waitForTransactionReceipt: (hash) => reader.waitForTransactionReceipt(hash),
  getCode: (address) => reader.getCode(address),
});
const facilitator = new x402Facilitator()
  .register(NETWORK, new ExactEvmScheme(signer))
  .register(NETWORK, new UptoEvmScheme(signer));
facilitator.registerExtension({ key: 'eip2612GasSponsoring' });

const stats = { verify: 0, settle: 0 };
let fault = null;

function takeFault(op) {
  if (fault?.op !== op || fault.times < 1) return {};
  fault.times -= 1;
  return fault;
}

async function decide(op, body, request, answer) {
  stats[op] += 1;
  const { status, lose, delayMs } = takeFault(op);
  if (delayMs) await new Promise((done) => setTimeout(done, delayMs));
  if (status) return answer(status, { error: 'told to fail' });
  const { paymentPayload, paymentRequirements } = body;
  try {
    const out = await facilitator[op](paymentPayload, paymentRequirements);
    const reason = out.invalidReason ?? out.errorReason;
    const { amount } = paymentRequirements;
    console.log(op, amount, out.isValid ?? out.success, reason ?? out.transaction ?? '');
    return lose ? request.socket.destroy() : answer(200, out);
  } catch (error) {
    console.log(op, String(error.message).slice(0, 300));
    return answer(400, { error: error.message });
  }
}

const server = http.createServer(async (request, response) => {
  const answer = (status, value) => {
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
  };
  let text = '';
  for await (const chunk of request) text += chunk;
  const body = text ? JSON.parse(text) : null;
  switch (`${request.method} ${request.url}`) {
    case 'POST /verify':
      return decide('verify', body, request, answer);
    case 'POST /settle':
      return decide('settle', body, request, answer);
    case 'GET /supported':
      return answer(200, facilitator.getSupported());
    case 'GET /rig/stats':
      return answer(200, { ...stats, faults: fault?.times ?? 0 });
    case 'POST /rig/fault':
      fault = body;
      return answer(200, {});
    default:
      return answer(404, { error: 'no such path' });
  }
});
server.listen(Number(PORT), '127.0.0.1', () => console.log('listens'));
process.on('SIGTERM', () => process.exit(0));
