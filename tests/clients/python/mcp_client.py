"""Agents find, learn, price and call a tool: by PyPI's `mcp` and by the Inspector's command line, each connected by OAuth.

Both know nothing but the address of the MCP endpoint; a member agrees in the pages. Prints what came of it as JSON.
"""

import asyncio
import json
import os
import pathlib
import subprocess
import tempfile
import urllib.parse

import httpx
import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import AuthorizationCodeResult
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata
from member import CALLBACK, URL, Member

MCP = URL + "/api/credits/mcp"
TASK = "give my words back to me"
INSPECTOR = pathlib.Path(os.environ["MCP_INSPECTOR"])


class Storage:
    """Keeps tokens in memory."""

    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


def expect(what, fact):
    if not fact:
        raise RuntimeError(f"{what} does not hold")


async def by_python(member):
    """The whole flow; gives what was charged and the access token."""
    storage, answer = Storage(), {}

    async def redirect(url):
        answer["to"] = member.agree(url)

    async def callback():
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(answer["to"]).query))
        return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))

    about = OAuthClientMetadata(
        client_name="mcp",
        redirect_uris=[CALLBACK],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
    )
    auth = OAuthClientProvider(MCP, about, storage, redirect, callback)
    async with httpx2.AsyncClient(auth=auth, trust_env=False) as http:
        async with Client(streamable_http_client(MCP, http_client=http)) as client:

            async def call(name, arguments, fails=False):
                result = await client.call_tool(name, arguments)
                if bool(result.is_error) != fails:
                    raise RuntimeError(f"{name}: {result.structured_content}")
                return result.structured_content

            names = [tool.name for tool in (await client.list_tools()).tools]
            before = await call("get_balance", {})
            slug = (await call("search", {"query": TASK}))["results"][0]["slug"]
            tool = (await call("describe", {"slug": slug}))["tool"]
            args = {"message": "hello"}
            quoted = await call("estimate", {"slug": slug, "args": args})
            wanted = {"slug": slug, "args": args, "idempotencyKey": quoted["idempotencyKey"]}
            wanted["approvalToken"] = quoted["approvalToken"]
            first = await call("execute", wanted)
            again = await call("execute", wanted)
            after = await call("get_balance", {})
            wrong = {"slug": slug, "args": {"message": 1}, "idempotencyKey": "wrong"}
            refused = await call("execute", wrong, fails=True)
            page = await call("get_result", {"callId": first["billing"]["callId"]})
    charged = int(before["credits"]) - int(after["credits"])
    expect("the price is one number", tool["priceCredits"] == quoted["estimate"]["priceCredits"] == str(charged))
    expect("a repeat is the same call", again["replayed"] and first["billing"] == again["billing"])
    expect("the result is kept", json.loads(page["content"]) == first["data"] == args)
    expect("a wrong argument is named", refused["details"][0]["path"] == "/message" and refused["hint"])
    return {"tools": names, "slug": slug, "charged": charged}, storage.tokens.access_token


def by_inspector(member, home):
    """The same by a command line that is started anew for each step; gives what the last call said."""
    env = os.environ | {"HOME": home, "MCP_AUTO_OPEN_ENABLED": "true", "MCP_INSPECTOR_SECRET_STORE": "file"}
    # Nothing is opened: the address is printed as well.
    env |= {"PATH": f"{home}:{os.environ['PATH']}"}
    opener = pathlib.Path(home, "xdg-open")
    opener.write_text("#!/bin/sh\n")
    opener.chmod(0o755)

    def call(name, arguments):
        command = [INSPECTOR, "--cli", "--server-url", MCP, "--transport", "http", "--format", "json"]
        command += ["--method", "tools/call", "--tool-name", name, "--tool-args-json", json.dumps(arguments)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        said = []
        with subprocess.Popen(command, env=env, text=True, **pipes) as child:
            try:
                for line in child.stderr:
                    said.append(line)
                    if line.startswith("Please navigate to: "):
                        httpx.get(member.agree(line.split(": ", 1)[1].strip()), trust_env=False).raise_for_status()
                output = child.stdout.read()
                code = child.wait(timeout=30)
            finally:
                child.kill()
        if code != 0:
            raise RuntimeError(f"{name}: {code} {output} {''.join(said)}")
        answer = json.loads(output)
        return answer.get("result", answer)["structuredContent"]

    slug = call("search", {"query": TASK})["results"][0]["slug"]
    price = call("describe", {"slug": slug})["tool"]["priceCredits"]
    args = {"message": "hello"}
    quoted = call("estimate", {"slug": slug, "args": args})["estimate"]["priceCredits"]
    wanted = {"slug": slug, "args": args, "idempotencyKey": "by-the-inspector"}
    first, again = call("execute", wanted), call("execute", wanted)
    expect("the price is one number", price == quoted == first["billing"]["creditsCharged"])
    expect("a repeat is the same call", again["replayed"] and first["billing"] == again["billing"])
    return {"slug": slug, "charged": int(price)}


def foreign(token):
    """How a token is refused that is good, but not for this; and how one is that is no token at all."""

    def ask(url, bearer):
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"Authorization": f"Bearer {bearer}", "Accept": "application/json, text/event-stream"}
        return httpx.post(url, json=message, headers=accept, trust_env=False)

    session = os.environ["TURNPIKE_SESSION_TOKEN"]
    other = ask(MCP, session)
    expect("a dashboard session is no agent's token", other.status_code in (401, 403))
    broken = ask(MCP, token[:-1] + ("A" if token[-1] != "A" else "B"))
    expect("a changed token is refused", broken.status_code == 401)
    expect("where to ask is said", "resource_metadata=" in broken.headers["www-authenticate"])
    keys = httpx.get(f"{URL}/api/credits/tenants/me/keys", headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    expect("the token opens nothing else", keys.status_code in (401, 403))
    return [other.status_code, broken.status_code, keys.status_code]


def main():
    member = Member(os.environ["TURNPIKE_FIRST_OWNER_URL"])
    python, token = asyncio.run(by_python(member))
    with tempfile.TemporaryDirectory() as home:
        inspector = by_inspector(member, home)
    print(json.dumps({"mcp": python, "inspector": inspector, "refusals": foreign(token)}))


if __name__ == "__main__":
    main()
