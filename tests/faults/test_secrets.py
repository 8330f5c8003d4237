"""Secrets of every origin are planted, a server gives all of them away, and nothing keeps them.

The worker that needs a value resolves it and hides it in everything that it says (design of
secrets: no event, log, status, process title, journal or error holds one). What a tool *returns*
is the server's own data: it reaches the caller as it is, and so does what a turn shows of it, which
is why the results of these turns are not looked at here.

The keyring is a module of its own: there is no system keyring on a build machine. It is found below
`keyring.backends`, where the worker accepts backends, through a finder that Python's own start
(`sitecustomize`) installs in the supervisor and so in all processes that come from it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from supervised import DIRECT_AGENT, ROGUE, Supervised, rogue_toml, server_toml, timing

from interlock.bus import procfs

SPILLER = ROGUE.with_name("spiller.py")
VARIABLE = 'variable-of-"quotes"/and\\more-1'
KEYRING = "keyring-value-" + "k" * 60
LITERAL = "literal-value-of-an-entry-0815"
RANDOM = "q8Zr5vT2nX7wLp4KsM9dHb3Y"
PASSWORD = "pass%2Fword-in-a-url"
OPTION = "behind-an-option"
HEADER = "of-a-header-that-is-not-used-yet"
NEIGHBOUR = "secret-of-the-neighbour"
PROVIDER = "sk-provider-key-nobody-asked-for-1"
PROXY = "proxy-password-7"
SECRETS = (VARIABLE, KEYRING, LITERAL, RANDOM, PASSWORD, OPTION, HEADER, NEIGHBOUR, PROXY)
ENVIRON = {
    "PLANTED_VARIABLE": VARIABLE,
    "PLANTED_KEY": NEIGHBOUR,
    "PLANTED_HEADER": HEADER,
    "OPENAI_API_KEY": PROVIDER,
    "INTERLOCK_PLANTED": "interlock-own-variable",
    "https_proxy": f"http://me:{PROXY}@127.0.0.1:9",
    "PYTHON_KEYRING_BACKEND": "keyring.backends.planted.Keyring",
}
FINDER = """
    import importlib.util, sys
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "keyring.backends.planted":
                return importlib.util.spec_from_file_location(name, {backend!r})
    sys.meta_path.append(Finder())
"""
BACKEND = """
    import keyring.backend
    class Keyring(keyring.backend.KeyringBackend):
        priority = 1
        def get_password(self, service, username):
            return {values!r}.get((service, username))
        def set_password(self, service, username, password):
            raise NotImplementedError
"""


def spiller(name: str, mode: str, *arguments: str, **settings: Any) -> str:
    command = (sys.executable, str(SPILLER), mode, *arguments)
    return server_toml(name, *command, **settings)


PLANTED_ENV = {
    "PLANTED_VARIABLE": "${PLANTED_VARIABLE}",
    "PLANTED_STORED": "x ${keyring:stored} y",
    "PLANTED_LITERAL": RANDOM,
    "DATABASE_URL": f"postgres://me:{PASSWORD}@host/db",
    "API_TOKEN": LITERAL,
}
CONFIG = (
    timing(ping=5.0)
    + DIRECT_AGENT
    + spiller("spills", "serve", "--api-key", OPTION, env=PLANTED_ENV)
    + spiller("refuses", "refuse", f"--token={OPTION}", env=PLANTED_ENV)
    + spiller("dies", "die", "${PLANTED_VARIABLE}", env=PLANTED_ENV)
    + rogue_toml("other", api_key_env="PLANTED_KEY")
    + '[mcp_servers.remote]\nurl = "http://127.0.0.1:9/mcp"\n'
    + 'headers = { Authorization = "Bearer ${PLANTED_HEADER}" }\n'
    + server_toml("unset", sys.executable, env={"TOKEN": "${NO_SUCH_VARIABLE}"})
    + server_toml("nowhere", sys.executable, env={"TOKEN": "x ${keyring:missing} y", "A": LITERAL})
    + f'[mcp_servers.wrong]\ncommand = "true"\nenv = "{LITERAL}"\n'
)


def plant(folder: Path) -> dict[str, str]:
    backend, site = folder / "planted.py", folder / "sitecustomize.py"
    values = {("interlock", "stored"): KEYRING}
    backend.write_text(textwrap.dedent(BACKEND).format(values=values))
    site.write_text(textwrap.dedent(FINDER).format(backend=str(backend)))
    return ENVIRON | {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    folder = tmp_path_factory.mktemp("secrets")
    with Supervised(folder, CONFIG, environ=plant(folder)) as running:
        for name in ("agent:main", "mcp:spills", "mcp:other"):
            running.wait_state(name, "READY")
        for name in ("mcp:unset", "mcp:nowhere", "mcp:refuses", "mcp:dies"):
            running.wait_state(name, "FAILED")
        yield running


def spellings(secret: str) -> set[bytes]:
    """A secret as it may stand in bytes of JSON, in what Python shows, and in logs of both."""
    once = json.dumps(secret)[1:-1]
    twice = json.dumps(once)[1:-1]
    return {one.encode() for one in (secret, once, twice, repr(secret)[1:-1])}


def found(data: bytes, secrets: tuple[str, ...] = SECRETS) -> list[str]:
    return [secret for secret in secrets if any(one in data for one in spellings(secret))]


def kept(interlock: Supervised) -> Iterator[tuple[str, bytes]]:
    """All that the supervisor and its workers tell or keep."""
    yield "events", json.dumps(interlock.events).encode()
    yield "status", json.dumps(interlock.client.status()).encode()
    yield "tools", json.dumps(interlock.client.tools()).encode()
    yield "turns", json.dumps(interlock.client.turns()).encode()
    yield "stderr", interlock.errors.read_bytes()
    for path in interlock.home.path.rglob("*"):
        if path.is_file():
            yield str(path), path.read_bytes()


def turn(interlock: Supervised, text: str) -> list[dict[str, Any]]:
    return list(interlock.client.turn(text))


def test_a_server_that_gives_everything_away_gives_it_to_its_caller_only(
    interlock: Supervised,
) -> None:
    place = interlock.mark()
    result = interlock.client.call("mcp:spills/result")
    environ = json.loads(result.content[0]["text"])
    assert environ["PLANTED_VARIABLE"] == VARIABLE and environ["API_TOKEN"] == LITERAL
    assert environ["PLANTED_STORED"] == f"x {KEYRING} y"
    errors = [interlock.client.call(f"mcp:spills/{n}") for n in ("rpc_error", "bad_arguments")]
    assert [one.outcome for one in errors] == ["tool_error", "invalid_arguments"]
    told = [*turn(interlock, "mcp:spills/rpc_error"), *turn(interlock, "mcp:spills/bad_arguments")]
    told += turn(interlock, "mcp:spills/log")
    assert "[secret]" in json.dumps(told)
    assert found(json.dumps(told).encode()) == []
    assert interlock.client.call("mcp:spills/die").outcome == "worker_died"
    turn(interlock, "mcp:spills/die")
    interlock.wait_event("worker.backoff", "mcp:spills", place)
    interlock.wait_state("mcp:spills", "READY")
    # The journal writes behind: what it answers it has written.
    assert len(interlock.client.turns()["turns"]) == 4
    # A process title of its own may hold all that a server was given; its first word is shown.
    assert [child["command"] for child in interlock.worker("mcp:spills")["children"]] == ["npm"]
    log = (interlock.home.logs / "mcp-spills.log").read_text()
    assert log.count("[secret]") > 20
    for where, data in kept(interlock):
        assert found(data) == [], where


def test_what_a_dying_server_last_said_is_told_without_a_piece_of_a_secret(
    interlock: Supervised,
) -> None:
    """A text that is cut first and masked later keeps the beginning of a value at the cut."""
    for name in ("mcp:refuses", "mcp:dies"):
        reason = interlock.worker(name)["reason"]
        assert "...[secret]" in reason, reason
        for secret in (VARIABLE, KEYRING, RANDOM, LITERAL):
            assert secret[:9] not in reason
    for where, data in kept(interlock):
        assert KEYRING[:16].encode() not in data, where


def test_what_a_server_lists_is_told_without_a_secret_and_without_a_piece_of_one(
    interlock: Supervised,
) -> None:
    """Names, what is wrong with tools, descriptions, schemas and addresses hold the values."""
    hidden = [row["message"] for row in interlock.attention("mcp:spills")]
    for what in ("named-[secret]", "prompt ask-[secret]", "typed0", "cut0"):
        assert any(what in text for text in hidden), (what, hidden)
    assert any("its name holds a value that is secret" in text for text in hidden)
    tools = interlock.client.tools(name="mcp:spills")["capabilities"]
    [told] = [row for row in tools if row["name"] == "mcp:spills/told0"]
    assert "p-[secret]" in json.dumps(told) and found(json.dumps(told).encode()) == []
    for where, data in kept(interlock):
        assert found(data) == [], where
        for secret in (VARIABLE, KEYRING, RANDOM):
            assert secret[:9].encode() not in data, (where, secret)


def test_nobody_else_sees_a_secret(interlock: Supervised) -> None:
    """A server sees an allow-listed environment and what its entry names; its worker no more."""
    seen = json.loads(interlock.client.call("mcp:other/env").content[0]["text"])
    assert seen["PLANTED_KEY"] == NEIGHBOUR
    assert not {name for name in seen if name.startswith(("INTERLOCK", "OPENAI"))}
    assert found(json.dumps(seen).encode()) == [NEIGHBOUR, PROXY]
    seen = json.loads(interlock.client.call("mcp:spills/result").content[0]["text"])
    assert "OPENAI_API_KEY" not in seen and "PLANTED_KEY" not in seen
    workers = {row["pid"]: row["name"] for row in interlock.client.status()["workers"]}
    spawner = procfs.children(interlock.pid)
    images = [pid for one in spawner for pid in (one, *procfs.children(one))]
    processes = {*images, *filter(None, workers)}
    assert len(processes) >= 5
    own = (*SECRETS, PROVIDER)
    for pid in processes:
        folder = Path("/proc", str(pid))
        assert found((folder / "environ").read_bytes(), own) == [], workers.get(pid, pid)
        assert found((folder / "cmdline").read_bytes(), own) == []
    # The supervisor was given the variables by its user; nothing came to that.
    given = (Path("/proc", str(interlock.pid)) / "environ").read_bytes()
    assert found(given, (KEYRING, LITERAL, RANDOM, PASSWORD, OPTION)) == []


def test_what_cannot_be_resolved_stops_its_own_worker_and_says_what_to_do(
    interlock: Supervised,
) -> None:
    for name, reference in (("mcp:unset", "NO_SUCH_VARIABLE"), ("mcp:nowhere", "keyring:missing")):
        row = interlock.worker(name)
        assert row["state"] == "FAILED" and row["generation"] == 1
        [trouble] = interlock.attention(name)
        assert trouble["code"] == "secret_unresolved" and trouble["fix"]
        assert f"${{{reference}}}" in trouble["message"]
    wrong = [row for row in interlock.attention() if "wrong" in json.dumps(row)]
    assert wrong and found(json.dumps(wrong).encode()) == []
    assert interlock.worker("mcp:other")["state"] == "READY"


def test_the_journal_holds_calls_and_turns_and_no_secret(interlock: Supervised) -> None:
    """The files are read as bytes above; here what they are is opened."""
    # What calls report is written in time; the end of a turn is written before it is told.
    list(interlock.client.turn("mcp:spills/rpc_error {}"))
    with sqlite3.connect(f"file:{interlock.home.journal}?mode=ro", uri=True) as journal:
        dump = "\n".join(journal.iterdump())
    journal.close()
    assert "mcp:spills/rpc_error" in dump
    assert found(dump.encode()) == []
    assert not os.listdir(interlock.home.results)
