"""PyPI `x402` with httpx and with requests, as they are; one JSON line in, one out.

    {"do": "httpx" | "requests", "url", "body", "headers"}      the whole call, paid when the server asks for it

    PAYER=0x… python client.py
"""

import asyncio
import base64
import json
import os
import sys

from eth_account import Account
from x402 import x402Client, x402ClientSync
from x402.http.clients import x402_requests, x402HttpxClient
from x402.mechanisms.evm import EthAccountSigner
from x402.mechanisms.evm.exact import ExactEvmScheme
from x402.mechanisms.evm.upto import UptoEvmClientScheme

ACCOUNT = Account.from_key(os.environ["PAYER"])
TIMEOUT_SECS = 60


def paying(client):
    signer = EthAccountSigner(ACCOUNT)
    client.register("eip155:*", ExactEvmScheme(signer))
    client.register("eip155:*", UptoEvmClientScheme(signer))
    return client


async def by_httpx(url, body, headers):
    async with x402HttpxClient(paying(x402Client()), timeout=TIMEOUT_SECS) as client:
        return await client.post(url, content=body.encode(), headers=headers)


def by_requests(url, body, headers):
    with x402_requests(paying(x402ClientSync())) as client:
        return client.post(url, data=body.encode(), headers=headers, timeout=TIMEOUT_SECS)


def answer(asked):
    words = (asked["url"], asked["body"], asked["headers"])
    response = asyncio.run(by_httpx(*words)) if asked["do"] == "httpx" else by_requests(*words)
    headers = {name.lower(): value for name, value in response.headers.items()}
    return {"status": response.status_code, "headers": headers, "body": base64.b64encode(response.content).decode()}


def main():
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        try:
            result = answer(json.loads(line))
        # Whatever goes wrong in a client is its answer.
        except Exception as error:  # noqa: BLE001
            result = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
