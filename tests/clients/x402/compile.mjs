// Compiles the contracts with npm `solc`; writes their runtime code, by name, where OUTPUT says.
//
//   SOURCE=… OUTPUT=… TURNPIKE_NODE_MODULES=… node compile.mjs

import fs from 'node:fs';
import { load } from './lines.mjs';

const { default: solc } = await load('solc');
const { SOURCE, OUTPUT } = process.env;

const input = {
  language: 'Solidity',
  sources: { 'Rig.sol': { content: fs.readFileSync(SOURCE, 'utf8') } },
  settings: {
    optimizer: { enabled: true, runs: 200 },
    viaIR: true,
    evmVersion: 'cancun',
    outputSelection: { '*': { '*': ['evm.deployedBytecode.object'] } },
  },
};
const output = JSON.parse(solc.compile(JSON.stringify(input)));
const errors = (output.errors ?? []).filter((found) => found.severity === 'error');
if (errors.length > 0) {
  console.error(errors.map((found) => found.formattedMessage).join('\n'));
  process.exit(1);
}
const code = Object.entries(output.contracts['Rig.sol']).map(([name, made]) => [
  name,
  `0x${made.evm.deployedBytecode.object}`,
]);
fs.writeFileSync(`${OUTPUT}.new`, JSON.stringify(Object.fromEntries(code)));
fs.renameSync(`${OUTPUT}.new`, OUTPUT);
