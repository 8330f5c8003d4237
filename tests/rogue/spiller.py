"""An MCP server over stdio that gives away whatever it knows; plain JSON-RPC, no SDK.

    python spiller.py MODE [ARGUMENT ...]

At the start it writes its environment and arguments to stderr: as JSON, as Python shows them, and
each value once on a line of its own. Its process title holds its arguments, as npm's does, and
more. Modes: `serve`; `refuse` answers initialize with an error that holds them; `die` exits with
them in its last line, with a value across every place where a text might be cut.

Tools: `rpc_error` and `bad_arguments` answer with JSON-RPC errors that hold the same, `log` sends
it as a log notification, `die` ends the server with it, `result` answers with the environment.
"""

import json
import os
import sys

import setproctitle

KNOWN = [*os.environ.values(), *sys.argv]
EVERYTHING = f"{json.dumps(dict(os.environ))} {dict(os.environ)!r} {sys.argv!r} {' '.join(KNOWN)}"
PLANTED = [value for name, value in os.environ.items() if name.startswith("PLANTED")]
ACROSS = "." * 285 + " ".join(PLANTED)
"""Texts that are quoted are cut after 300 characters."""
TOOLS = ("rpc_error", "bad_arguments", "log", "die", "result")


def say(document):
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def die():
    for place in range(0, 400, 7):
        sys.stderr.write("." * place + " ".join(reversed(KNOWN)) + "\n")
    sys.stderr.write(ACROSS + "\n")
    sys.stderr.flush()
    os._exit(5)


def answer(request, name):
    refused = {"jsonrpc": "2.0", "id": request["id"]}
    match name:
        case "rpc_error":
            say(refused | {"error": {"code": -32000, "message": EVERYTHING}})
        case "bad_arguments":
            say(refused | {"error": {"code": -32602, "message": EVERYTHING}})
        case "die":
            die()
        case _:
            if name == "log":
                params = {"level": "error", "data": EVERYTHING}
                say({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
            text = json.dumps(dict(os.environ)) if name == "result" else "said"
            say(refused | {"result": {"content": [{"type": "text", "text": text}]}})


def main():
    setproctitle.setproctitle(" ".join(["npm exec spiller", *sys.argv[2:], *PLANTED]))
    sys.stderr.write("\n".join([EVERYTHING, *KNOWN, ""]))
    sys.stderr.flush()
    if sys.argv[1] == "die":
        die()
    for line in sys.stdin:
        request = json.loads(line)
        match request.get("method"):
            case "initialize" if sys.argv[1] == "refuse":
                error = {"code": -32000, "message": ACROSS + EVERYTHING}
                say({"jsonrpc": "2.0", "id": request["id"], "error": error})
            case "initialize":
                about = {"name": "spiller", "version": os.environ.get("PLANTED_LITERAL", "1")}
                body = {"capabilities": {"tools": {}}, "serverInfo": about}
                body["protocolVersion"] = request["params"]["protocolVersion"]
                say({"jsonrpc": "2.0", "id": request["id"], "result": body})
            case "tools/list":
                schema = {"type": "object"}
                tools = [{"name": name, "inputSchema": schema} for name in TOOLS]
                say({"jsonrpc": "2.0", "id": request["id"], "result": {"tools": tools}})
            case "tools/call":
                answer(request, request["params"]["name"])
            case "ping":
                say({"jsonrpc": "2.0", "id": request["id"], "result": {}})


if __name__ == "__main__":
    main()
