# Where the tests' tools come from: exact versions, installed under the target directory. Sourced, not run.
# shellcheck shell=bash

# The newest releases that run on Python 3.11 and Node.js 20.
PYTHON_TOOLS=(openai==3.52.0 schemathesis==4.32.5 "pyjwt[crypto]==2.15.1" standardwebhooks==1.1.0
    "x402[httpx,requests,evm]==2.25.0" jsonschema==4.26.0 authlib==1.9.9 mcp==2.3.0)
NODE_TOOLS=(openai@6.30.1 @copilotkit/aimock@1.43.0 jose@6.2.17 oidc-provider@9.13.3 playwright-core@1.64.1
    standardwebhooks@1.1.1 @x402/core@2.27.0 @x402/evm@2.27.0 @x402/fetch@2.27.0 mppx@0.11.0 viem@2.57.1 solc@0.8.37
    @foundry-rs/anvil@1.7.1 @modelcontextprotocol/inspector@2.12.0)

# Installs unless the same versions are there already; $1 = target directory.
install_python_clients() {
    local place=$1/test-python
    if [[ -x $place/bin/schemathesis && $(cat "$place/tools" 2>/dev/null) == "${PYTHON_TOOLS[*]}" ]]; then
        return
    fi
    python3 -m venv --clear "$place" &&
        "$place/bin/pip" install --quiet --disable-pip-version-check "${PYTHON_TOOLS[@]}" &&
        printf '%s\n' "${PYTHON_TOOLS[*]}" >"$place/tools"
}

# The same from npm. Lock files are refused here (platform-specific optional packages), so versions are exact.
install_node_clients() {
    local place=$1/test-node
    if [[ -d $place/node_modules/openai && $(cat "$place/tools" 2>/dev/null) == "${NODE_TOOLS[*]}" ]]; then
        return
    fi
    mkdir -p "$place" &&
        printf '{ "private": true }\n' >"$place/package.json" &&
        npm install --prefix "$place" --no-package-lock --no-fund --no-audit --loglevel=error "${NODE_TOOLS[@]}" &&
        printf '%s\n' "${NODE_TOOLS[*]}" >"$place/tools"
}
