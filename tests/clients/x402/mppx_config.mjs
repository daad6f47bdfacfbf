// Who pays with npm `mppx`, also by its command line (MPPX_CONFIG): PAYER's key, US dollars of the test network.

import { load } from './lines.mjs';

const { evm } = await load('mppx/client');
const { assets } = await load('mppx/evm/client');
const { privateKeyToAccount } = await load('viem/accounts');

const account = privateKeyToAccount(process.env.PAYER);

export default { methods: [evm.charge({ account, currencies: [assets.baseSepolia.USDC], maxAmount: '1' })] };
