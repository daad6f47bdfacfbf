"""An agent is connected by authlib, which knows nothing but the MCP endpoint, and by a member's forms.

Prints what came of it as JSON. Whatever goes otherwise than it should ends with an exception.
"""

import json
import os
import urllib.parse

import httpx
from authlib.common.security import generate_token
from authlib.integrations.httpx_client import OAuth2Client, OAuthError
from member import CALLBACK, URL, Member


def refused(what):
    try:
        what()
    except OAuthError as error:
        return error.error
    raise RuntimeError("this should have been refused")


def main():
    def get(url):
        return httpx.get(url, trust_env=False).raise_for_status().json()

    resource = get(f"{URL}/.well-known/oauth-protected-resource/api/credits/mcp")
    server = get(resource["authorization_servers"][0] + "/.well-known/oauth-authorization-server")
    wanted = {"client_name": "authlib", "redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none"}
    registered = httpx.post(server["registration_endpoint"], json=wanted, trust_env=False).raise_for_status().json()
    member = Member(os.environ["TURNPIKE_FIRST_OWNER_URL"])
    client = OAuth2Client(
        registered["client_id"],
        redirect_uri=CALLBACK,
        scope="mcp:read mcp:execute offline_access",
        token_endpoint_auth_method=registered["token_endpoint_auth_method"],
        code_challenge_method="S256",
        trust_env=False,
    )
    verifier = generate_token(48)
    url, state = client.create_authorization_url(
        server["authorization_endpoint"], code_verifier=verifier, resource=resource["resource"]
    )
    answer = member.agree(url)
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(answer).query))
    if query["iss"] != server["issuer"] or not answer.startswith(CALLBACK + "?"):
        raise RuntimeError(f"the answer went to {answer}")

    def fetch(code_verifier):
        return client.fetch_token(
            server["token_endpoint"],
            authorization_response=answer,
            state=state,
            code_verifier=code_verifier,
            resource=resource["resource"],
        )

    wrong = refused(lambda: fetch(generate_token(48)))
    first = dict(fetch(verifier))
    second = dict(client.refresh_token(server["token_endpoint"], refresh_token=first["refresh_token"]))
    if second["refresh_token"] == first["refresh_token"] or second["access_token"] == first["access_token"]:
        raise RuntimeError("nothing was replaced")
    # The one that was replaced ends everything when it comes again.
    replayed = refused(lambda: client.refresh_token(server["token_endpoint"], refresh_token=first["refresh_token"]))
    family = refused(lambda: client.refresh_token(server["token_endpoint"], refresh_token=second["refresh_token"]))
    revoked = client.revoke_token(server["revocation_endpoint"], token=second["access_token"])
    print(
        json.dumps(
            {
                "client": "authlib",
                "scope": first["scope"],
                "refusals": [wrong, replayed, family],
                "revocation": revoked.status_code,
            }
        )
    )


if __name__ == "__main__":
    main()
