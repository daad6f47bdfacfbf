#!/usr/bin/env python3
"""A stand-in for an API: answers from the API's own OpenAPI document, and writes down what it was asked.

    openapi_stand_in.py DOCUMENT PORT LOG

Each request becomes a line of JSON in LOG: method, path (as it was on the wire), query, headers, body, and the operation
that it is. The answer is the document's example of a success, or the plainest value of its schema.
"""

import http.server
import json
import re
import sys
import threading
import urllib.parse

import yaml

# Deepest nesting of a value that is made of a schema.
DEEPEST = 6


def load(file):
    text = open(file, encoding="utf-8").read()
    if file.endswith(".json"):
        return json.loads(text)
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


class Api:
    """The document's operations."""

    def __init__(self, document):
        self.document = document
        self.operations = []
        for path, item in document["paths"].items():
            parts = re.split(r"\{[^}]*\}", path)
            pattern = re.compile("[^/]+".join(re.escape(part) for part in parts))
            for method, operation in item.items():
                if method in ("get", "post", "put", "patch", "delete"):
                    self.operations.append((method.upper(), len(parts), pattern, path, operation))
        # Fixed words go before placeholders.
        self.operations.sort(key=lambda one: one[1])

    def find(self, method, path):
        for known, _, pattern, template, operation in self.operations:
            if known == method and pattern.fullmatch(path):
                return template, operation
        return None, None

    def resolve(self, value):
        for _ in range(16):
            if not isinstance(value, dict) or "$ref" not in value:
                break
            target = self.document
            for part in value["$ref"].removeprefix("#/").split("/"):
                target = target[part.replace("~1", "/").replace("~0", "~")]
            value = target
        return value

    def answer(self, operation):
        """Status and value of a success; `...` = no body."""
        responses = {str(status): self.resolve(response) for status, response in operation["responses"].items()}
        status = next((status for status in ("200", "201", "202", "204") if status in responses), "200")
        content = responses.get(status, {}).get("content", {})
        kind = next((kind for kind in content if "json" in kind), None)
        if kind is None:
            return int(status), ...
        media = content[kind]
        if "example" in media:
            return int(status), media["example"]
        for example in media.get("examples", {}).values():
            example = self.resolve(example)
            if "value" in example:
                return int(status), example["value"]
        return int(status), self.plainest(media.get("schema", {}), 0)

    def plainest(self, schema, depth):
        schema = self.resolve(schema)
        if not isinstance(schema, dict) or depth > DEEPEST:
            return None
        for word in ("example", "const", "default"):
            if schema.get(word) is not None:
                return schema[word]
        if schema.get("enum"):
            return schema["enum"][0]
        if schema.get("allOf"):
            parts = [self.plainest(part, depth + 1) for part in schema["allOf"]]
            return {name: value for part in parts if isinstance(part, dict) for name, value in part.items()}
        for word in ("oneOf", "anyOf"):
            if schema.get(word):
                return self.plainest(schema[word][0], depth + 1)
        kind = schema.get("type")
        kind = kind[0] if isinstance(kind, list) else kind
        if kind == "object" or "properties" in schema:
            return {name: self.plainest(one, depth + 1) for name, one in schema.get("properties", {}).items()}
        if kind == "array":
            return [self.plainest(schema.get("items", {}), depth + 1)]
        return {"integer": 1, "number": 1.5, "boolean": True, "null": None}.get(kind, "text")


def handler(api, prefix, log):
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
            path, _, query = self.path.partition("?")
            template, operation = api.find(self.command, path.removeprefix(prefix))
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen = {"method": self.command, "path": path, "query": query, "headers": headers, "body": body}
            seen["operation"] = template
            status, value = (404, {"error": "no such operation"}) if operation is None else api.answer(operation)
            seen["answer"] = None if value is ... else value
            with lock:
                log.write(json.dumps(seen, default=str) + "\n")
                log.flush()
            text = b"" if value is ... else json.dumps(value, default=str).encode()
            self.send_response(status)
            if text:
                self.send_header("content-type", "application/json; charset=utf-8")
            if status != 204:
                self.send_header("content-length", str(len(text)))
            self.send_header("set-cookie", "a=b")
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve

        def log_message(self, *_):
            pass

    return Handler


def main():
    file, port, log = sys.argv[1:]
    document = load(file)
    servers = document.get("servers") or [{"url": "/"}]
    prefix = urllib.parse.urlsplit(servers[0]["url"]).path.rstrip("/")
    with open(log, "a", encoding="utf-8") as out:
        address = ("127.0.0.1", int(port))
        http.server.ThreadingHTTPServer(address, handler(Api(document), prefix, out)).serve_forever()


if __name__ == "__main__":
    main()
