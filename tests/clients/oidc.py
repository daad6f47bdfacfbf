"""A real identity provider: who signed in with a password alone steps up before anything dangerous."""

import base64
import contextlib
import hashlib
import json
import os
import pathlib
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request

from common import Failed, free_port, process, say, wait_for

HERE = pathlib.Path(__file__).resolve().parent
AUDIENCE = "https://svc.test/api"
CALLBACK = "http://127.0.0.1:9/callback"
SECOND_FACTOR = "urn:svc:mfa"
CHALLENGE = f'Bearer error="insufficient_user_authentication", acr_values="{SECOND_FACTOR}", max_age=600'

# What needs a fresh second factor: how it is asked for, and what who shows one is answered.
GUARDED = [
    ("POST", "/api/credits/tenants/me/keys", {"name": "made after a step-up"}, (201,)),
    ("DELETE", "/api/credits/end-users/{user}", None, (200,)),
    ("POST", "/api/credits/connect/processor/disconnect", None, (200,)),
]


@contextlib.contextmanager
def provider(data, node_modules, port=None):
    """The identity provider; gives its issuer and its process."""
    port = port or free_port()
    env = os.environ | {
        "PORT": str(port),
        "CALLBACK": CALLBACK,
        "AUDIENCE": AUDIENCE,
        "TURNPIKE_NODE_MODULES": str(node_modules),
    }
    log = data / "oidc-provider.log"
    with process("oidc-provider", ["node", HERE / "node" / "oidc_provider.mjs"], log, env=env) as child:
        wait_for("oidc-provider", lambda: child.poll() is not None or "listens" in log.read_text())
        yield f"http://127.0.0.1:{port}"


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Browser:
    """Follows redirects and keeps cookies; the headers stand for what a person would type."""

    def __init__(self, issuer):
        self.issuer = issuer
        self.cookies = {}
        self.opener = urllib.request.build_opener(NoRedirect, urllib.request.ProxyHandler({}))

    def hop(self, url, headers):
        jar = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        request = urllib.request.Request(url, headers=headers | ({"Cookie": jar} if jar else {}))
        try:
            answer = self.opener.open(request, timeout=30)
        except urllib.error.HTTPError as error:
            answer = error
        for cookie in answer.headers.get_all("Set-Cookie") or []:
            name, value = cookie.split(";", 1)[0].split("=", 1)
            self.cookies[name] = value
        place = answer.headers.get("Location")
        if not place:
            raise Failed(f"no redirect from {url}: {answer.status} {answer.read(300)}")
        return urllib.parse.urljoin(self.issuer, place)

    def sign_in(self, subject, second_factor=False, age=0, acr=None):
        """An access token by the authorization code flow with PKCE."""
        verifier = secrets.token_urlsafe(32)
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "client_id": "dash",
            "response_type": "code",
            "redirect_uri": CALLBACK,
            "scope": "openid dashboard",
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "resource": AUDIENCE,
        }
        if acr:
            query["acr_values"] = acr
        headers = {"x-test-sub": subject, "x-test-mfa": "1" if second_factor else "0", "x-test-auth-age": str(age)}
        url = f"{self.issuer}/auth?{urllib.parse.urlencode(query)}"
        for _ in range(12):
            url = self.hop(url, headers)
            if url.startswith(CALLBACK):
                break
        found = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)
        if "code" not in found:
            raise Failed(f"the sign-in failed: {found}")
        form = {
            "grant_type": "authorization_code",
            "code": found["code"][0],
            "client_id": "dash",
            "redirect_uri": CALLBACK,
            "code_verifier": verifier,
            "resource": AUDIENCE,
        }
        request = urllib.request.Request(f"{self.issuer}/token", data=urllib.parse.urlencode(form).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["access_token"]


def config(issuer):
    """What the service is told of the provider."""
    return f"""
[identity]
mode = "oidc"
issuer = "{issuer}"
audience = "{AUDIENCE}"
acr_values = ["{SECOND_FACTOR}"]
"""


def call(service, method, path, session=None, body=None, step_up=None):
    """Gives the status, the body and the challenge."""
    headers = {"Authorization": f"Bearer {session}"} if session else {}
    data = None
    if body is not None:
        headers["Content-Type"], data = "application/json", json.dumps(body).encode()
    if step_up:
        headers["X-Svc-Step-Up-Token"] = step_up
    request = urllib.request.Request(service["url"] + path, method=method, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer), None
    except urllib.error.HTTPError as error:
        return error.code, json.load(error), error.headers.get("WWW-Authenticate")


def must(answer, status, code=None):
    if answer[0] != status or answer[1].get("code") != code:
        raise Failed(f"{status} {code} was expected: {answer}")
    return answer[1]


def must_step_up(answer):
    must(answer, 401, "STEP_UP_REQUIRED")
    if answer[2] != CHALLENGE:
        raise Failed(f"the challenge is {answer[2]}")


class Guarded:
    """The guarded routes, each time with an end user of its own to retire."""

    def __init__(self, service, key):
        self.service, self.key, self.users = service, key, 0

    def ask(self, session, step_up=None):
        for method, path, body, good in GUARDED:
            self.users += 1
            user = f"user-{self.users}"
            policy = f"/api/credits/end-users/{user}/policy"
            must(call(self.service, "PUT", policy, self.key, {}), 200)
            place = path.format(user=user)
            yield place, good, call(self.service, method, place, session, body, step_up)

    def refuse(self, session, step_up=None):
        for _, _, answer in self.ask(session, step_up):
            must_step_up(answer)

    def allow(self, session, step_up=None):
        for place, good, answer in self.ask(session, step_up):
            if answer[0] not in good:
                raise Failed(f"{place} was answered with {answer}")


def exercise(service, issuer, stop_provider):
    """`service` has an owner `owner-1` and another one `owner-2`; `stop_provider` ends the provider."""
    browser, stranger = Browser(issuer), Browser(issuer)
    guarded = Guarded(service, service["key"])
    password = browser.sign_in("owner-1")
    must(call(service, "GET", "/api/credits/balance", password), 200)
    must(call(service, "GET", "/api/credits/balance", stranger.sign_in("nobody")), 403, "TENANT_NOT_MEMBER")
    guarded.refuse(password)
    must_step_up(call(service, "POST", "/api/credits/step-up", password))
    say(f"a password alone is asked for a second factor at {len(GUARDED)} routes")

    second = browser.sign_in("owner-1", second_factor=True, acr=SECOND_FACTOR)
    guarded.allow(second)
    given = must(call(service, "POST", "/api/credits/step-up", second), 201)
    guarded.allow(password, given["stepUpToken"])
    say("after the step-up each works, with the new session and with a step-up token")

    stale = Browser(issuer).sign_in("owner-1", second_factor=True, age=700, acr=SECOND_FACTOR)
    must(call(service, "GET", "/api/credits/balance", stale), 200)
    guarded.refuse(stale)
    must_step_up(call(service, "POST", "/api/credits/step-up", stale))
    other = Browser(issuer).sign_in("owner-2", second_factor=True)
    theirs = must(call(service, "POST", "/api/credits/step-up", other), 201)["stepUpToken"]
    guarded.refuse(password, theirs)
    say("a second factor of 700 seconds ago is refused, and so is another person's step-up token")

    stop_provider()
    time.sleep(0.5)
    must(call(service, "GET", "/api/credits/balance", password), 200)
    guarded.allow(second)
    forged = password[:-6] + ("AAAAAA" if not password.endswith("AAAAAA") else "BBBBBB")
    must(call(service, "GET", "/api/credits/balance", forged), 401, "INVALID_CREDENTIAL")
    say("the provider is down and its keys go on working")

    out = must(call(service, "POST", "/api/credits/sign-out", password), 200)
    if out["revokedStepUpTokens"] != 1:
        raise Failed(f"one step-up token was to be revoked: {out}")
    must(call(service, "GET", "/api/credits/balance", password), 401, "CREDENTIAL_REVOKED")
    guarded.refuse(stale, given["stepUpToken"])
    say("signing out ended the session and its step-up token")
