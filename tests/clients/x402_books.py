"""What was paid, as the chain, our receipts and our ledger say it."""

import collections
import json
import re
import uuid

from common import Failed, say
from x402_rig import MODELS, NETWORK, PAY_TO, ask, unpack

LIST_MODELS_PRICE = 3000
HASH = re.compile(r"0x[0-9a-f]{64}")

# How the chain stood before a call of this payer.
Mark = collections.namedtuple("Mark", "payer height paid received")


class Books:
    """What was paid, by receipt; every answer is held against the chain and our receipt."""

    def __init__(self, service, rig):
        self.service, self.rig, self.amounts = service, rig, {}

    def mark(self, payer):
        payer = self.rig.addresses[payer]
        return Mark(payer, self.rig.height(), self.rig.balance(payer), self.rig.balance(PAY_TO))

    def check(self, answer, operation, since, paid=True):
        """An answer that was paid for since then, or already before: gives its receipt."""
        if answer.status != 200:
            raise Failed(f"{operation} was answered with {answer.status}: {answer.headers} {answer.body[:500]}")
        settled = unpack(answer.headers.get("payment-response"))
        if not settled or settled["success"] is not True or settled["network"] != NETWORK:
            raise Failed(f"{operation}: the payment's response is {settled}")
        if not HASH.fullmatch(settled["transaction"]):
            raise Failed(f"{operation}: no transaction in {settled}")
        receipt = self.receipt(answer)
        moved = self.rig.payments(since.height, since.payer)
        amount = int(receipt["amount"])
        if moved != ([(settled["transaction"], amount)] if paid else []):
            raise Failed(f"{operation}: the chain moved {moved}, the receipt says {receipt}")
        spent, received = since.paid - self.rig.balance(since.payer), self.rig.balance(PAY_TO) - since.received
        if spent != received or spent != (amount if paid else 0):
            raise Failed(f"{operation}: the payer spent {spent}, we received {received}, the receipt says {receipt}")
        same = {
            "operation": operation,
            "transaction": settled["transaction"],
            "network": NETWORK,
            "scheme": "exact" if operation == "list-models" else "upto",
        }
        wrong = {name: receipt[name] for name, value in same.items() if receipt[name] != value}
        if wrong or receipt["payer"].lower() != since.payer.lower() or receipt["payTo"].lower() != PAY_TO.lower():
            raise Failed(f"{operation}: the receipt {receipt} is wrong in {wrong}")
        most = int(receipt["maxAmount"])
        if operation == "list-models" and (amount, most) != (LIST_MODELS_PRICE, LIST_MODELS_PRICE):
            raise Failed(f"{operation}: {amount} of {most} was paid")
        if operation != "list-models" and not 0 < amount < most:
            raise Failed(f"{operation}: {amount} was settled of the authorised {most}")
        if "amount" in settled and int(settled["amount"]) != amount:
            raise Failed(f"{operation}: {settled} was told, and {amount} paid")
        check_body(operation, json.loads(answer.body))
        self.amounts[receipt["receiptId"]] = amount
        return receipt

    def receipt(self, answer):
        known, request = answer.headers["x-svc-receipt-id"], answer.headers["x-svc-request-id"]
        url = f"{self.service.url}/vendor/receipts/{known}"
        found = ask("GET", url, headers={"x-svc-request-id": request})
        if found.status != 200:
            raise Failed(f"the receipt {known} was answered with {found.status}: {found.body[:500]}")
        receipt = json.loads(found.body)["receipt"]
        if (receipt["receiptId"], receipt["requestId"], receipt["status"]) != (known, request, "settled"):
            raise Failed(f"the receipt of {request} is {receipt}")
        if ask("GET", url, headers={"x-svc-request-id": str(uuid.uuid4())}).status == 200:
            raise Failed("a receipt was given to somebody else")
        return receipt

    def close(self):
        """The chain, the receipts and the ledger say the same."""
        tenants = json.loads(self.service.operate("--json", "tenant", "list"))
        tenants = tenants if isinstance(tenants, list) else tenants["tenants"]
        house = [tenant["id"] for tenant in tenants if tenant["name"].startswith("Public calls")]
        if len(house) != 1:
            raise Failed(f"one house tenant was expected: {tenants}")
        exported = self.service.operate("export", "ledger", "--tenant", house[0], "--format", "jsonl")
        rows = [json.loads(line) for line in exported.splitlines()]
        spent = [row["amountUsd"] for row in rows if row["debit"].startswith("payer")]
        ledger = sum(micros(amount) for amount in spent)
        receipts = sum(self.amounts.values())
        on_chain = self.rig.balance(PAY_TO)
        if not on_chain == receipts == ledger:
            raise Failed(f"{on_chain} on the chain, {receipts} in receipts, {ledger} in the ledger")
        say(f"{len(self.amounts)} paid calls: chain, receipts and ledger all say {on_chain / 1e6:.6f} USD")


def micros(usd):
    whole, _, part = usd.partition(".")
    return int(whole) * 1_000_000 + int(part.ljust(6, "0")[:6])


def check_body(operation, body):
    """The OpenAI shape."""
    if operation == "list-models":
        good = body["object"] == "list" and {model["id"] for model in body["data"]} >= set(MODELS)
    elif operation == "chat":
        good = body["object"] == "chat.completion" and body["choices"][0]["message"]["content"]
    else:
        good = body["object"] == "text_completion" and body["choices"][0]["text"]
    if not good:
        raise Failed(f"{operation} was answered with {body}")
