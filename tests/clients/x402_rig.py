"""What the calls that wallets pay for need around them: a chain, a facilitator, a provider that counts, and clients."""

import base64
import collections
import contextlib
import hashlib
import http.client
import http.server
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
import urllib.parse

from common import Failed, free_port, process, wait_for

HERE = pathlib.Path(__file__).resolve().parent / "x402"
CHAIN_ID = 84532
NETWORK = f"eip155:{CHAIN_ID}"
# Where clients expect the network's US dollars, and where everybody expects the other contracts.
TOKEN = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
PERMIT2 = "0x000000000022D473030F116dDEE9F6B43aC78BA3"
CONTRACTS = {
    "RigUSDC": TOKEN,
    "RigPermit2": PERMIT2,
    "RigExactProxy": "0x402085c248EeA27D92E8b30b2C58ed07f9E20001",
    "RigUptoProxy": "0x4020A4f3b7b90ccA423B9fabCc0CE57C6C240002",
    "RigMulticall": "0xcA11bde05977b3631167028862bE2a173976CA11",
}
PAY_TO = "0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65"
# The chain's test accounts, in this order. A fresh payer has approved nothing and has no ether, a broke one no tokens.
ACCOUNTS = ("facilitator", "payer", "freshPayer", "brokePayer", "payTo", "emptiedPayer", "busyPayer")
FUNDS = 100_000_000
# keccak256("Transfer(address,address,uint256)"), and the first bytes of the token's functions.
TRANSFER_EVENT = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
TRANSFER, MINT, APPROVE, BALANCE_OF = "0xa9059cbb", "0x40c10f19", "0x095ea7b3", "0x70a08231"
MODELS = ("vendor-v4-flash", "vendor-v4-pro")
# How long the service may take to stop.
STOP_SECS = 40
# A client that says nothing for so long is not waited for.
CLIENT_SECS = 60

Answer = collections.namedtuple("Answer", "status headers body")


def unpack(header):
    """What a header says in base64."""
    return json.loads(base64.b64decode(header)) if header else None


def ask(method, url, body=None, headers=None, timeout=60):
    """One request; any status is an answer."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request(method, parts.path, body, headers or {})
        answer = connection.getresponse()
        names = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, names, answer.read())


def ask_json(method, url, body=None):
    words = None if body is None else json.dumps(body)
    answer = ask(method, url, words, {"Content-Type": "application/json"})
    if answer.status != 200:
        raise Failed(f"{method} {url}: {answer.status} {answer.body[:300]}")
    return json.loads(answer.body)


def word(value):
    """One argument of a contract's function: an address or a number."""
    return f"{int(value, 16) if isinstance(value, str) else value:064x}"


class Chain:
    """A local EVM chain."""

    def __init__(self, url):
        self.url = url

    def rpc(self, method, *params):
        found = ask_json("POST", self.url, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        if "error" in found:
            raise Failed(f"{method}: {found['error']}")
        return found["result"]

    def answers(self):
        with contextlib.suppress(OSError):
            return self.rpc("eth_chainId")

    def balance(self, address):
        call = {"to": TOKEN, "data": BALANCE_OF + word(address)}
        return int(self.rpc("eth_call", call, "latest"), 16)

    def send(self, sender, function, *arguments):
        data = function + "".join(word(argument) for argument in arguments)
        sent = self.rpc("eth_sendTransaction", {"from": sender, "to": TOKEN, "data": data})
        done = wait_for("a transaction", lambda: self.rpc("eth_getTransactionReceipt", sent))
        if done["status"] != "0x1":
            raise Failed(f"a transaction failed: {done}")

    def height(self):
        return int(self.rpc("eth_blockNumber"), 16)

    def payments(self, since, payer=None):
        """What was paid to us in the blocks after `since`: pairs of transaction and amount."""
        if self.height() == since:
            return []
        topics = [TRANSFER_EVENT, payer and "0x" + word(payer), "0x" + word(PAY_TO)]
        wanted = {"address": TOKEN, "fromBlock": hex(since + 1), "toBlock": "latest", "topics": topics}
        return [(log["transactionHash"], int(log["data"], 16)) for log in self.rpc("eth_getLogs", wanted)]


class Facilitator:
    """The running facilitator."""

    def __init__(self, url):
        self.url = url

    def stats(self):
        return ask_json("GET", self.url + "/rig/stats")

    def fault(self, op, **fault):
        ask_json("POST", self.url + "/rig/fault", {"op": op, "times": 1} | fault)

    def await_asked(self, op, before):
        """Until it was asked for this operation once more than `before` says."""
        wait_for(f"a request to {op}", lambda: self.stats()[op] > before[op])


class Provider:
    """Answers as a provider of models does and counts. `slow` in a request makes it take its time."""

    SLOW_SECS = 0.6

    def __init__(self):
        self.seen = []
        rig = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                rig.seen.append(asked)
                if "slow" in json.dumps(asked):
                    time.sleep(rig.SLOW_SECS)
                body = json.dumps(rig.answer(self.path, asked)).encode()
                # Who asked may have been killed.
                with contextlib.suppress(ConnectionError):
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, path, asked):
        text = f"answer {len(self.seen)}"
        if path.endswith("/chat/completions"):
            kind, content = "chat.completion", {"message": {"role": "assistant", "content": text}}
        else:
            kind, content = "text_completion", {"text": text}
        return {
            "id": f"cmpl-{len(self.seen)}",
            "object": kind,
            "created": int(time.time()),
            "model": asked["model"],
            "choices": [{"index": 0, "finish_reason": "stop"} | content],
            "usage": {"prompt_tokens": 9, "completion_tokens": 20, "total_tokens": 29},
        }


class Service:
    """`turnpike serve` on a port of its own, which can be killed and started again."""

    def __init__(self, binary, data, env, settings):
        self.env, self.log, self.child = env, data / "log", None
        self.url = f"http://127.0.0.1:{free_port()}"
        config = data / "turnpike.toml"
        config.write_text(f'[server]\nlisten = "{self.url.removeprefix("http://")}"\n{settings}')
        self.command = [binary, "--config", config, "--data", data]

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, failure, *_):
        self.child.send_signal(signal.SIGTERM)
        try:
            ended = self.child.wait(STOP_SECS)
        except subprocess.TimeoutExpired:
            ended = self.kill()
        if failure:
            print(f"--- the end of the log of turnpike serve:\n{self.log.read_text()[-3000:]}", flush=True)
        elif ended != 0:
            raise Failed(f"the service ended with {ended} after SIGTERM")

    def start(self):
        with open(self.log, "ab") as output:
            self.child = subprocess.Popen(
                [*self.command, "serve"], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self.env
            )
        wait_for("turnpike serve", self.answers)

    def answers(self):
        if self.child.poll() is not None:
            raise Failed(f"turnpike serve ended with {self.child.returncode}: {self.log.read_text()[-2000:]}")
        with contextlib.suppress(OSError):
            return ask("GET", self.url + "/healthz").status == 200

    def kill(self):
        self.child.kill()
        return self.child.wait()

    def operate(self, *words):
        return subprocess.check_output([*self.command, *words], env=self.env, timeout=60, text=True)


def settings(provider_url, facilitator_url, rpc_url):
    models = ", ".join(f'"{model}"' for model in MODELS)
    return f"""
[payments]
mode = "facilitator"
facilitator_url = "{facilitator_url}"
rpc_url = "{rpc_url}"
network = "{NETWORK}"
asset = "{TOKEN}"
asset_name = "USDC"
asset_version = "2"
pay_to = "{PAY_TO}"

[[providers]]
id = "local"
kind = "openai"
base_url = "{provider_url}"
prices_from = "sim"
models = [{models}]
"""


class Client:
    """A script in a process of its own that answers one JSON line with another."""

    def __init__(self, name, command, log, env):
        self.name, self.log, self.ready, self.turn = name, log, False, threading.Lock()
        with open(log, "wb") as errors:
            pipe = subprocess.PIPE
            self.child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, env=env, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()

    def line(self):
        late = threading.Timer(CLIENT_SECS, self.child.kill)
        late.start()
        try:
            said = self.child.stdout.readline()
        finally:
            late.cancel()
        if not said:
            raise Failed(f"{self.name} says nothing: {self.log.read_text()[-2000:]}")
        return json.loads(said)

    def ask(self, do, **more):
        with self.turn:
            if not self.ready:
                self.ready = self.line()["ready"]
            self.child.stdin.write(json.dumps({"do": do} | more) + "\n")
            self.child.stdin.flush()
            said = self.line()
        if "error" in said:
            raise Failed(f"{self.name}: {said['error']}")
        return said

    def post(self, url, body, headers, do="pay", **more):
        """The whole call with this client."""
        headers = {"content-type": "application/json"} | headers
        said = self.ask(do, url=url, body=body, headers=headers, **more)
        return Answer(said["status"], said["headers"], base64.b64decode(said["body"]))


class Tools:
    """Where the tests' tools are, and what our scripts are started with."""

    def __init__(self, node_modules, python, data):
        self.modules, self.python, self.data = node_modules, python, data

    def environment(self, **more):
        return os.environ | {"TURNPIKE_NODE_MODULES": str(self.modules)} | more

    def node(self, script, **env):
        return ["node", HERE / script], self.environment(**env)

    def fetch_client(self, payers, rpc=""):
        command, env = self.node("fetch_client.mjs", PAYERS=json.dumps(payers), RPC=rpc)
        return Client("@x402/fetch", command, self.data / "fetch.log", env)

    def mpp_client(self, payer):
        command, env = self.node("mpp_client.mjs", PAYER=payer)
        return Client("mppx", command, self.data / "mppx.log", env)

    def python_client(self, payer):
        command = [self.python, HERE / "client.py"]
        return Client("x402 of PyPI", command, self.data / "python.log", os.environ | {"PAYER": payer})

    def contracts(self):
        """The contracts' code by name, compiled once for each source."""
        source = HERE / "Rig.sol"
        made = self.modules.parent / f"x402-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.json"
        if not made.exists():
            command, env = self.node("compile.mjs", SOURCE=str(source), OUTPUT=str(made))
            subprocess.run(command, env=env, check=True, timeout=120, stdin=subprocess.DEVNULL)
        return json.loads(made.read_text())


@contextlib.contextmanager
def chain(tools):
    """A chain with the contracts and the payers; gives it and the accounts' keys by name."""
    found = list(tools.modules.glob("@foundry-rs/anvil-*/bin/anvil"))
    if not found:
        raise Failed("anvil is not installed")
    port, accounts = free_port(), tools.data / "anvil.json"
    command = [found[0], "--silent", "--port", str(port), "--chain-id", str(CHAIN_ID), "--config-out", accounts]
    with process("anvil", command, tools.data / "anvil.log") as child:
        rig = Chain(f"http://127.0.0.1:{port}")
        wait_for("anvil", lambda: child.poll() is not None or rig.answers())
        made = json.loads(accounts.read_text())
        keys = dict(zip(ACCOUNTS, made["private_keys"]))
        addresses = dict(zip(ACCOUNTS, made["available_accounts"]))
        for name, code in tools.contracts().items():
            if name in CONTRACTS:
                rig.rpc("anvil_setCode", CONTRACTS[name], code)
        for name in ("payer", "freshPayer", "emptiedPayer", "busyPayer"):
            rig.send(addresses["facilitator"], MINT, addresses[name], FUNDS)
        for name in ("payer", "brokePayer", "emptiedPayer", "busyPayer"):
            rig.send(addresses[name], APPROVE, PERMIT2, 2**256 - 1)
        rig.rpc("anvil_setBalance", addresses["freshPayer"], "0x0")
        rig.addresses = addresses
        yield rig, keys


@contextlib.contextmanager
def facilitator(tools, chain_url, key):
    port, log = free_port(), tools.data / "facilitator.log"
    command, env = tools.node("facilitator.mjs", PORT=str(port), RPC=chain_url, FACILITATOR_KEY=key)
    with process("the facilitator", command, log, env=env) as child:
        wait_for("the facilitator", lambda: child.poll() is not None or "listens" in log.read_text())
        yield Facilitator(f"http://127.0.0.1:{port}")
