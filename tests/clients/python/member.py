"""The first owner of `turnpike dev` with a browser's forms: joins, signs in, and agrees to connect an agent."""

import base64
import hashlib
import hmac
import os
import re
import struct
import time

import httpx

URL = os.environ["TURNPIKE_URL"]
CALLBACK = "http://127.0.0.1:33418/callback"
PASSWORD = "a quiet harbour"


class Member:
    """The first owner, with a browser that keeps the cookie."""

    def __init__(self, link):
        self.browser = httpx.Client(base_url=URL, headers={"Sec-Fetch-Site": "same-origin"}, trust_env=False)
        page = self.browser.get(link).raise_for_status().text
        chosen = {"login": "ada@example.com", "password": PASSWORD, "repeated": PASSWORD}
        page = self.send("/identity/join", {"token": hidden(page, "token")} | chosen).text
        secret = re.search(r'<code id="secret">([^<]+)<', page).group(1)
        self.send("/identity/enrolment", {"ticket": hidden(page, "ticket"), "code": totp(secret)})

    def send(self, path, form):
        answer = self.browser.post(path, data=form)
        if answer.status_code >= 400:
            raise RuntimeError(f"{path}: {answer.status_code} {answer.text[-600:]}")
        return answer

    def agree(self, url):
        """Follows the pages; gives the address that the client is answered at."""
        page = httpx.get(url, trust_env=False).raise_for_status().text
        onward = re.search(r'href="(/identity/authorize\?request=[^"]+)"', page).group(1)
        page = self.browser.get(onward).raise_for_status().text
        workspace = re.search(r'<option value="([^"]+)"', page).group(1)
        choice = {"workspace": workspace, "max_usd": "1", "days": "30", "answer": "agree"}
        answer = self.send("/identity/authorize", {"request": hidden(page, "request")} | choice)
        return answer.headers["location"]


def hidden(page, name):
    return re.search(f'type="hidden" name="{name}" value="([^"]*)"', page).group(1)


def totp(secret):
    key = base64.b32decode(re.sub(r"\s", "", secret) + "=" * (-len(re.sub(r"\s", "", secret)) % 8))
    digest = hmac.new(key, struct.pack(">Q", int(time.time()) // 30), hashlib.sha1).digest()
    at = digest[-1] & 15
    return f"{(struct.unpack('>I', digest[at : at + 4])[0] & 0x7FFFFFFF) % 10**6:06}"
