"""The smallest MCP stdio server: answers at once, with as little work of its own as possible.

Tools: `echo` returns the arguments' `text`; `bytes` returns a text of `n` characters. With the
argument `flood` it also writes log lines and junk without a pause, on both of its outputs.
"""

import json
import sys
import threading
from typing import Any

SCHEMAS = [
    {
        "name": "echo",
        "description": "Returns the text.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    },
    {
        "name": "bytes",
        "description": "Returns a text of n characters.",
        "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
]


def answer(request: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result for one request, or None where there is no such method."""
    method = request["method"]
    if method == "tools/call":
        params = request["params"]
        arguments = params.get("arguments") or {}
        if params["name"] == "echo":
            text = arguments.get("text", "")
        else:
            text = "x" * arguments.get("n", 0)
        return {"content": [{"type": "text", "text": text}]}
    if method == "initialize":
        return {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "tiny", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": SCHEMAS}
    return {} if method == "ping" else None


def flood(lock: threading.Lock) -> None:
    """Write junk and log messages for ever."""
    note = {"level": "info", "data": "x" * 200}
    line = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": note})
    junk = (line + "\n" + "this is no JSON\n") * 20
    while True:
        with lock:
            sys.stdout.write(junk)
            sys.stdout.flush()
        sys.stderr.write("y" * 500 + "\n")
        sys.stderr.flush()


def main() -> None:
    """Serve standard input until it ends."""
    lock = threading.Lock()
    if "flood" in sys.argv[1:]:
        threading.Thread(target=flood, args=(lock,), daemon=True).start()
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer(request)
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        if result is None:
            reply["error"] = {"code": -32601, "message": "no such method"}
        else:
            reply["result"] = result
        with lock:
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
