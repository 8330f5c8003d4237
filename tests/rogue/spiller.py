"""An MCP server over stdio that gives away whatever it knows; plain JSON-RPC, no SDK.

    python spiller.py MODE [ARGUMENT ...]

At the start it writes its environment and arguments to stderr: as JSON, as Python shows them, and
each value once on a line of its own. Its process title holds its arguments, as npm's does, and
more. Modes: `serve`; `refuse` answers initialize with an error that holds them; `die` exits with
them in its last line, with a value across every place where a text might be cut.

Its lists hold the values, too: in names, in what is wrong with tools, in texts and in addresses.

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


SCHEMA = {"type": "object"}


def tools():
    """Five tools to call, and those that give a value away by what they are."""
    found = [{"name": name, "inputSchema": SCHEMA} for name in TOOLS]
    for place, value in enumerate(PLANTED):
        shape = {"type": "object", "properties": {f"p-{value}": {"default": value}}}
        found += [
            {"name": f"named-{value}", "inputSchema": SCHEMA},
            {"name": f"dropped-{value}", "inputSchema": {"type": "array"}},
            {"name": f"typed{place}", "inputSchema": {"type": value}},
            {"name": f"cut{place}", "inputSchema": {"type": "." * 385 + value}},
            {"name": f"told{place}", "description": "." * 185 + value, "inputSchema": shape},
        ]
    return {"tools": found}


def resources():
    """Addresses and titles with a value in them."""
    return {
        "resources": [
            {"uri": f"db://{value}", "name": value, "description": value} for value in PLANTED
        ]
        + [{"uri": f"db://{n}", "name": "." * 185 + value} for n, value in enumerate(PLANTED)]
    }


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
                able = {"tools": {}, "resources": {}, "prompts": {}}
                body = {"capabilities": able, "serverInfo": about}
                body["protocolVersion"] = request["params"]["protocolVersion"]
                say({"jsonrpc": "2.0", "id": request["id"], "result": body})
            case "tools/list":
                say({"jsonrpc": "2.0", "id": request["id"], "result": tools()})
            case "resources/list":
                say({"jsonrpc": "2.0", "id": request["id"], "result": resources()})
            case "resources/templates/list":
                say({"jsonrpc": "2.0", "id": request["id"], "result": {"resourceTemplates": []}})
            case "prompts/list":
                prompts = [{"name": f"ask-{value}", "description": value} for value in PLANTED]
                say({"jsonrpc": "2.0", "id": request["id"], "result": {"prompts": prompts}})
            case "tools/call":
                answer(request, request["params"]["name"])
            case "ping":
                say({"jsonrpc": "2.0", "id": request["id"], "result": {}})


if __name__ == "__main__":
    main()
