"""An MCP server over stdio that misbehaves on request; plain JSON-RPC, no SDK.

    python server.py [MODE[=VALUE] ...]        further modes come from ROGUE_MODES, space separated

Modes of the start and of the whole server:
  mute_init          never answers initialize
  mute_list          never answers tools/list
  exit_at_start[=N]  exits with status N (default 3) after a line on stderr
  exit_after_init    exits with status 4 right after initialize
  slow_init=S        answers initialize after S seconds
  bad_init           answers initialize with the wrong shape
  odd_init=HOW       answers initialize with a text as result (`text`), with NaN in it (`nan`), over
                     several lines (`pretty`) or in a wrong framing (`header`)
  init_error         answers initialize with an error
  close_stdout       closes stdout before initialize and runs on
  noise              prints lines that are no JSON before every answer
  flood_stdout[=MB]  prints rubbish on stdout without end (or that many MB) after tools/list
  flood_stderr[=MB]  the same on stderr
  flood_line         prints one line without end on stdout after tools/list
  flood_answers      answers requests that nobody made, without end, after tools/list
  flood_notify=N     sends N log notifications after tools/list
  late_session       starts such a child 6 s after its own start, without a call
  ignore_end         ignores SIGTERM and the end of stdin
  grandchild         starts a child in the same process group that sleeps
  grandchild_session starts a child in a session of its own that sleeps and ignores SIGTERM
  ask_flood          sends pings without end and stops reading stdin after tools/list
  not_reading        stops reading stdin after tools/list
  mute_ping          never answers ping
  no_schema          lists a tool without inputSchema and one whose schema is a string
  duplicates         lists one tool twice
  pages=N            lists N pages of 10 further tools
  new_pages          answers every tools/list with one tool and another cursor
  endless_pages      answers every tools/list with the same cursor
  extra_tools=N      lists N further tools
  other_tools=N      lists N tools with other names each time and says after it that they changed
  resources          has resources, a template and prompts; `mute`: never lists them
  names=SEED         lists 32 tools with colliding, dotted, long and Unicode names
  one_bad            lists 11 good tools and one with an impossible schema, nothing else
  reverse            sends ping, sampling and roots requests before the answer of a call

Tools: see TOOLS below. Several calls run at once, each in a thread.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

MODES = {}
for word in sys.argv[1:] + os.environ.get("ROGUE_MODES", "").split():
    name, _, value = word.partition("=")
    MODES[name] = value

WRITE = threading.Lock()
SLEEPER = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
TOOLS = {
    "echo": "Answers with its arguments",
    "env": "Answers with the environment of the server",
    "pid": "Answers with the process id",
    "sleep": "Answers after `seconds`; `progress`: reports every that many seconds",
    "hold": "Answers once it can read a byte from the FIFO at `path`",
    "mute": "Never answers",
    "crash": "Exits in the middle of the call with status `code` or by `signal`",
    "fail": "Answers with isError",
    "rpc_error": "Answers with a JSON-RPC error of `code`",
    "bad_result": "Answers with something that is no tool result",
    "not_utf8": "Answers with bytes that are not UTF-8 inside the text",
    "half_character": "Answers with half of a surrogate pair inside the text",
    "garbage": "Prints lines of rubbish, not UTF-8 and nested deeply, then answers",
    "big": "Answers with a text of `bytes` characters",
    "long_line": "Prints a line of `bytes` bytes that answers nothing, then answers",
    "raw": "Answers with the bytes of `text`, in which ID is the request's id",
    "twice": "Answers twice, and with ids that nobody asked for",
    "add_resource": "Adds the resource `name` and says that the list changed",
    "add_tool": "Adds the tool `name` and says that the list changed",
    "remove_tool": "Takes the tool `name` away and says that the list changed",
    "break_list": "Has the tool list refused from now on, or with `mend` no more; says it changed",
    "log": "Sends a log notification with `text`, then answers",
    "close_stdout": "Closes stdout in the call and runs on",
    "spawn": "Starts a sleeping process; `session`: in a session of its own; answers with its pid",
    "stderr": "Writes `text` on stderr, then answers",
    "unknown_fields": "Answers with fields that no specification knows",
    "cancelled": "Answers with the ids of the cancelled calls so far",
    "burst": "Sends `count` progress notifications without a pause, then answers",
    "images": "Answers with `count` images of `bytes` bytes",
}
EXTRA = []
LISTED = []
CANCELLED = []


def write(data):
    with WRITE:
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except (OSError, ValueError):
            pass


def send(document):
    write(json.dumps(document).encode() + b"\n")


def notify(method, params):
    send({"jsonrpc": "2.0", "method": method, "params": params})


def result(request, body):
    if "noise" in MODES:
        write(b"Listening on port 8080\nINFO {not json}\n\n")
    send({"jsonrpc": "2.0", "id": request["id"], "result": body})


def text(request, words, **more):
    result(request, {"content": [{"type": "text", "text": words}], **more})


def flood(stream, megabytes, line=b"rubbish " * 127 + b"\n"):
    sent = 0
    while not megabytes or sent < float(megabytes) * 1e6:
        try:
            with WRITE:
                os.write(stream, line * 16)
        except OSError:
            return
        sent += len(line) * 16


def schema(name):
    tool = {"name": name, "description": TOOLS.get(name, "Another tool")}
    return tool | {"inputSchema": {"type": "object", "properties": {}}}


def odd_names(seed):
    """31 or 32 names that are hard to tell apart or to write; the same for the same seed."""
    long = "a_very_long_name_" + "x" * 72
    names = ["run-shell", "run_shell", "RunShell", "run.shell", "run__shell", "_run", "run_"]
    names += [
        long + "a",
        long + "b",
        long[:89] + "\u00e9",
        "caf\u00e9",
        "cafe\u0301",
        "\u6587\u4ef6",
    ]
    names += [
        "\u0444\u0430\u0439\u043b",
        "a/b",
        "a%2Fb",
        "a:b",
        "a b",
        "a.b.c",
        "1st",
        "UPPER",
        "upper",
    ]
    names += ["\U0001f600", "x" * 90, "mcp__a__b", "*", "?", "[a]", "a\\b", 'quote"d']
    names += ["same"] if seed else ["same", "same2"]
    return names


def listed(request, key, entries):
    if MODES.get("resources") != "mute":
        result(request, {key: entries})


def resources(request):
    method, params = request["method"], request.get("params") or {}
    match method:
        case "resources/list":
            entries = [
                {"uri": "memo:///one", "name": "one", "mimeType": "text/plain"},
                {"uri": "memo:///no/where", "name": "gone"},
                {"name": "no uri"},
            ]
            listed(request, "resources", entries + [{"uri": uri, "name": "new"} for uri in EXTRA])
        case "resources/templates/list":
            entries = [{"uriTemplate": "memo:///{+path}{?line}", "name": "any"}]
            listed(
                request, "resourceTemplates", [*entries, {"uriTemplate": "memo:///{", "name": "x"}]
            )
        case "prompts/list":
            arguments = [{"name": "topic", "description": "of the talk", "required": True}]
            listed(request, "prompts", [{"name": "greet", "arguments": arguments}])
        case "resources/read" if "no/where" not in params["uri"]:
            text = f"contents of {params['uri']}"
            result(request, {"contents": [{"uri": params["uri"], "text": text}]})
        case "prompts/get":
            words = f"talk about {params['arguments'].get('topic')}"
            message = {"role": "user", "content": {"type": "text", "text": words}}
            result(request, {"description": "d", "messages": [message]})
        case _:
            error = {"code": -32002, "message": "there is no such resource"}
            send({"jsonrpc": "2.0", "id": request["id"], "error": error})


def list_tools(request):
    if "mute_list" in MODES:
        return
    if "broken_list" in MODES:
        error = {"code": -32603, "message": "no list today"}
        send({"jsonrpc": "2.0", "id": request["id"], "error": error})
        return
    tools = [schema(name) for name in [*TOOLS, *EXTRA]]
    if "one_bad" in MODES:
        tools = [schema(f"good_{n}") for n in range(11)]
        tools.insert(5, {"name": "bad", "inputSchema": {"type": "array"}})
    if "names" in MODES:
        tools = [schema(name) for name in odd_names(int(MODES["names"] or 0))]
    tools += [schema(f"extra_{n}") for n in range(int(MODES.get("extra_tools") or 0))]
    if "other_tools" in MODES:
        LISTED.append(len(LISTED))
        tools += [schema(f"new_{len(LISTED)}_{n}") for n in range(int(MODES["other_tools"] or 1))]
    if "no_schema" in MODES:
        tools += [{"name": "no_schema"}, {"name": "broken_schema", "inputSchema": "string"}]
    if "duplicates" in MODES:
        tools.append(schema("echo"))
    body = {"tools": tools}
    cursor = (request.get("params") or {}).get("cursor")
    if "new_pages" in MODES:
        LISTED.append(len(LISTED))
        body = {"tools": tools if not cursor else [], "nextCursor": f"c{len(LISTED)}"}
    if "endless_pages" in MODES:
        body["nextCursor"] = "again"
    if "pages" in MODES:
        page = int(cursor or 0)
        if page:
            body["tools"] = [schema(f"page_{page}_{n}") for n in range(10)]
        if page < int(MODES["pages"]):
            body["nextCursor"] = str(page + 1)
    result(request, body)
    if "other_tools" in MODES:
        notify("notifications/tools/list_changed", {})
    after_list()


def after_list():
    for mode, stream in (("flood_stdout", 1), ("flood_stderr", 2)):
        if mode in MODES:
            threading.Thread(target=flood, args=(stream, MODES.pop(mode)), daemon=True).start()
    answers = b'{"jsonrpc":"2.0","id":7,"result":{}}\n{"jsonrpc":"2.0","id":"i9","result":{}}\n'
    for mode, line in (("flood_line", b"rubbish " * 128), ("flood_answers", answers)):
        if mode in MODES:
            MODES.pop(mode)
            threading.Thread(target=flood, args=(1, "", line), daemon=True).start()
    for n in range(int(MODES.pop("flood_notify", "") or 0)):
        notify("notifications/message", {"level": "info", "data": f"flood {n}"})
    if "ask_flood" in MODES:
        ping = b'{"jsonrpc":"2.0","id":7,"method":"ping"}\n'
        threading.Thread(target=flood, args=(1, "", ping), daemon=True).start()
    if "not_reading" in MODES or "ask_flood" in MODES:
        time.sleep(600)


def sleep(request, arguments, token):
    until = time.monotonic() + float(arguments.get("seconds", 1))
    step, done = arguments.get("progress"), 0
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, step or left))
        done += 1
        if step and token is not None:
            notify("notifications/progress", {"progressToken": token, "progress": done})
    text(request, "slept")


def hold(request, arguments):
    with open(arguments["path"], "rb", buffering=0) as fifo:
        fifo.read(1)
    text(request, "held")


def crash(arguments):
    if "signal" in arguments:
        os.kill(os.getpid(), int(arguments["signal"]))
        time.sleep(600)
    os._exit(int(arguments.get("code", 7)))


def spawn(own_session):
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER], start_new_session=own_session, stderr=subprocess.DEVNULL
    )
    return process.pid


def garbage():
    deep = b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 5000 + b"]" * 5000 + b"}"
    for line in (b"\xff\xfe\xfa", b'{"jsonrpc"', b"[]", b"null", b'{"id":{}}', b"{}", deep):
        write(line + b"\n")


def twice(request):
    answer = {"jsonrpc": "2.0", "id": request["id"], "result": {"content": []}}
    for ident in ("i999999", 12345, None, 1.5, request["id"], request["id"]):
        send(answer | {"id": ident})


def call(request):
    params = request["params"]
    name, arguments = params["name"], params.get("arguments") or {}
    token = (params.get("_meta") or {}).get("progressToken")
    if "reverse" in MODES:
        for ident, method in (("s1", "ping"), (77, "sampling/createMessage"), (78, "roots/list")):
            send({"jsonrpc": "2.0", "id": ident, "method": method, "params": {}})
    match name:
        case "echo" | "log" | "stderr" | "garbage" | "long_line" | "burst":
            if name == "log":
                notify("notifications/message", {"level": "warning", "data": arguments["text"]})
            elif name == "stderr":
                os.write(2, arguments["text"].encode() + b"\n")
            elif name == "garbage":
                garbage()
            elif name == "long_line":
                write(b"x" * int(arguments["bytes"]) + b"\n")
            elif name == "burst":
                for n in range(int(arguments["count"])):
                    notify("notifications/progress", {"progressToken": token, "progress": n})
            text(request, json.dumps(arguments))
        case "env":
            text(request, json.dumps(dict(os.environ)))
        case "pid":
            text(request, str(os.getpid()))
        case "sleep":
            sleep(request, arguments, token)
        case "hold":
            hold(request, arguments)
        case "mute":
            pass
        case "crash":
            crash(arguments)
        case "fail":
            text(request, "it failed", isError=True)
        case "rpc_error":
            error = {"code": arguments.get("code", -32603), "message": "refused"}
            send({"jsonrpc": "2.0", "id": request["id"], "error": error})
        case "bad_result":
            result(request, arguments.get("body", 5))
        case "big":
            text(request, "x" * int(arguments["bytes"]))
        case "images":
            image = {"type": "image", "mimeType": "image/png", "data": "A" * arguments["bytes"]}
            result(request, {"content": [image] * int(arguments["count"])})
        case "twice":
            twice(request)
        case _:
            odd_call(request, name, arguments)


def odd_call(request, name, arguments):
    ident = json.dumps(request["id"]).encode()
    match name:
        case "not_utf8":
            body = b'{"content":[{"type":"text","text":"a\xff\xc3b"}]}'
            write(b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (ident, body))
        case "raw":
            write(arguments["text"].encode().replace(b"ID", ident) + b"\n")
        case "half_character":
            text(request, "a\ud83d")
        case "add_resource":
            EXTRA.append(arguments["name"])
            notify("notifications/resources/list_changed", {})
            text(request, "done")
        case "add_tool" | "remove_tool":
            (EXTRA.append if name == "add_tool" else EXTRA.remove)(arguments["name"])
            notify("notifications/tools/list_changed", {})
            text(request, "done")
        case "break_list":
            MODES.pop("broken_list", "") if arguments.get("mend") else MODES.update(broken_list="")
            notify("notifications/tools/list_changed", {})
            text(request, "done")
        case "close_stdout":
            os.close(1)
        case "spawn":
            text(request, str(spawn(bool(arguments.get("session")))))
        case "unknown_fields":
            text(request, "hi", shape={"of": ["things", "to", "come"]}, _meta={"x": 1})
        case "cancelled":
            text(request, json.dumps(CANCELLED))
        case _:
            text(request, f"{name} called")


def handle(request):
    match request.get("method"):
        case "initialize":
            initialize(request)
        case "tools/list":
            list_tools(request)
        case "tools/call":
            threading.Thread(target=call, args=(request,), daemon=True).start()
        case "notifications/cancelled":
            CANCELLED.append(request["params"]["requestId"])
        case "ping":
            if "mute_ping" not in MODES:
                result(request, {})
        case str(method) if "resources" in MODES and method.startswith(("resources/", "prompts/")):
            resources(request)
        case method if method and "id" in request:
            error = {"code": -32601, "message": f"no method {method}"}
            send({"jsonrpc": "2.0", "id": request["id"], "error": error})


def initialize(request):
    if "mute_init" in MODES:
        return
    if "init_error" in MODES:
        error = {"code": -32000, "message": "no licence"}
        send({"jsonrpc": "2.0", "id": request["id"], "error": error})
        return
    time.sleep(float(MODES.get("slow_init") or 0))
    if "bad_init" in MODES:
        result(request, {"protocolVersion": 7})
        return
    about = {
        "protocolVersion": request["params"]["protocolVersion"],
        "capabilities": {"tools": {"listChanged": True}, "logging": {}}
        | ({"resources": {}, "prompts": {}} if "resources" in MODES else {}),
        "serverInfo": {"name": "rogue", "version": "1"},
    }
    if MODES.get("odd_init") == "text":
        about = "hello"
    elif MODES.get("odd_init") == "nan":
        about["_meta"] = {"cost": float("nan")}
    answer = {"jsonrpc": "2.0", "id": request["id"], "result": about}
    if MODES.get("odd_init") == "pretty":
        write(json.dumps(answer, indent=2).encode() + b"\n")
    elif MODES.get("odd_init") == "header":
        body = json.dumps(answer).encode()
        write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    else:
        result(request, about)
    if "exit_after_init" in MODES:
        os._exit(4)


def main():
    if "ignore_end" in MODES:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "exit_at_start" in MODES:
        sys.stderr.write("rogue: giving up at once\n")
        sys.exit(int(MODES["exit_at_start"] or 3))
    for mode in ("grandchild", "grandchild_session"):
        if mode in MODES:
            spawn(mode == "grandchild_session")
    if "late_session" in MODES:
        threading.Timer(6.0, spawn, (True,)).start()
    if "close_stdout" in MODES:
        os.close(1)
    for line in sys.stdin.buffer:
        handle(json.loads(line))
    while "ignore_end" in MODES or "close_stdout" in MODES:
        time.sleep(600)


if __name__ == "__main__":
    main()
