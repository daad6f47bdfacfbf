"""An end-user token, verified by PyJWT with nothing but the service's published keys.

Usage: jwks_check.py [--issuer ISSUER] [--audience AUDIENCE] [TOKEN_FILE]
Defaults: TURNPIKE_TOKEN_ISSUER, TURNPIKE_TOKEN_AUDIENCE and TURNPIKE_END_USER_TOKEN of the environment, where
TURNPIKE_URL says which service. Prints one JSON object with the claims and exits 0, or says on standard error what
was not as it should be. Needs pyjwt[crypto].
"""

import argparse
import json
import os
import pathlib

import jwt

REQUIRED = ["iss", "aud", "sub", "iat", "exp", "jti"]


def check(condition, *what):
    if not condition:
        raise SystemExit("jwks_check.py: " + " ".join(str(part) for part in what))


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--issuer", default=os.environ.get("TURNPIKE_TOKEN_ISSUER"))
    parser.add_argument("--audience", default=os.environ.get("TURNPIKE_TOKEN_AUDIENCE"))
    parser.add_argument("token_file", nargs="?", type=pathlib.Path)
    given = parser.parse_args()
    check(given.issuer and given.audience, "which issuer and which audience?")
    token = given.token_file.read_text() if given.token_file else os.environ.get("TURNPIKE_END_USER_TOKEN", "")
    check(token.strip(), "which token?")
    return token.strip(), given.issuer, given.audience


def refused(token, keys, issuer, audience, error):
    """A library that accepts everything would prove nothing."""
    try:
        verified(token, keys, issuer, audience)
    except error:
        return
    check(False, "was accepted where", error.__name__, "was due")


def verified(token, keys, issuer, audience):
    key = keys.get_signing_key_from_jwt(token)
    return jwt.decode(
        token, key, algorithms=["EdDSA"], issuer=issuer, audience=audience, options={"require": REQUIRED}
    )


def main():
    token, issuer, audience = arguments()
    keys = jwt.PyJWKClient(os.environ["TURNPIKE_URL"] + "/.well-known/jwks.json", timeout=30)
    claims = verified(token, keys, issuer, audience)
    header = jwt.get_unverified_header(token)
    check(header["alg"] == "EdDSA" and header["typ"] == "end-user+jwt", "header", header)
    check(60 <= claims["exp"] - claims["iat"] <= 3600, "lifetime", claims)

    message, signature = token.rsplit(".", 1)
    other = message + "." + ("B" if signature[0] == "A" else "A") + signature[1:]
    refused(other, keys, issuer, audience, jwt.InvalidSignatureError)
    refused(token, keys, issuer + "x", audience, jwt.InvalidIssuerError)
    refused(token, keys, issuer, audience + "x", jwt.InvalidAudienceError)

    published = keys.get_jwk_set().keys
    print(
        json.dumps(
            {
                "client": f"python pyjwt {jwt.__version__}",
                "keys": [key.key_id for key in published],
                "kid": header["kid"],
                "claims": claims,
            }
        )
    )


if __name__ == "__main__":
    main()
