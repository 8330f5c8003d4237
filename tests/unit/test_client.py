"""The synchronous client against real sockets: requests, calls, turns and what goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from bus_peer import ECHO, WORKER, Peer

from interlock.bus import (
    Client,
    ConnectionLostError,
    InterlockError,
    NoSupervisorError,
    NotFoundError,
    RequestTimeoutError,
    UsageError,
    connect,
    edge,
)
from interlock.bus import messages as m
from interlock.bus.errors import UnauthorizedError


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    with Peer(tmp_path / "home") as found:
        yield found


@pytest.fixture
def bus(peer: Peer) -> Iterator[Client]:
    with connect(peer.home.path) as client:
        yield client


def kinds(peer: Peer) -> list[type[m.Request]]:
    return peer.do(lambda: [type(request) for request in peer.requests])


def test_plain_requests(peer: Peer, bus: Client) -> None:
    assert bus.status()["supervisor"] == {"pid": os.getpid()}
    assert bus.tools(for_text="git log", agent="main")["agent"] == "main"
    assert bus.turns(limit=3) == {"turns": []}
    assert bus.reload() == {"changed": [], "problems": []}
    assert bus.control("restart", WORKER)["state"] == "READY"
    bus.shutdown()
    assert bus.home == peer.home.path
    assert bus.epoch == "epoch-1"


def test_a_call_goes_to_its_worker_and_its_ticket_is_kept(peer: Peer, bus: Client) -> None:
    for n in range(3):
        result = bus.call(ECHO, {"n": n})
        assert (result.outcome, result.structured, result.duration_ms) == ("ok", {"n": n}, 1.5)
        assert result.ok
        assert result.text == f'{{"n":{n}}}'
        assert result.capability == ECHO
    assert kinds(peer).count(m.Resolve) == 1
    assert [call.generation for call in peer.calls] == [1, 1, 1]


def test_a_ticket_about_to_expire_is_not_used(peer: Peer, bus: Client) -> None:
    peer.life = 1.0
    assert bus.call(ECHO).ok
    assert bus.call(ECHO).ok
    assert kinds(peer).count(m.Resolve) == 2


@pytest.mark.parametrize("size", [10, 256 << 10, 5 << 20, 20 << 20])
def test_results_of_any_size(bus: Client, size: int) -> None:
    assert len(bus.call("mcp:test/big", {"size": size}).text) == size


@pytest.mark.parametrize(
    ("tool", "outcome"),
    [("broken", "tool_error"), ("garbage", "tool_error"), ("overloaded", "overloaded")],
)
def test_outcomes_are_returned(bus: Client, tool: str, outcome: str) -> None:
    assert bus.call(f"mcp:test/{tool}").outcome == outcome


def test_progress_is_passed_on(bus: Client) -> None:
    steps: list[str] = []
    result = bus.call("mcp:test/progress", on_progress=lambda step: steps.append(step.message))
    assert result.ok
    assert steps == ["step 1", "step 2", "step 3"]


def test_a_mute_tool_times_out_and_is_cancelled(peer: Peer, bus: Client) -> None:
    result = bus.call("mcp:test/mute", timeout=0.1)
    assert (result.outcome, result.may_have_run) == ("timeout", True)
    assert result.duration_ms >= 100
    assert bus.call(ECHO).ok  # on the same connection, so after the cancel
    assert peer.cancelled == [1]


def test_a_worker_that_dies_fails_the_call_at_once(peer: Peer, bus: Client) -> None:
    def kill_when_called() -> None:
        while not peer.do(lambda: bool(peer.calls)):
            pass
        peer.do(peer.kill_worker)

    killer = threading.Thread(target=kill_when_called)
    killer.start()
    result = bus.call("mcp:test/mute", timeout=30)
    killer.join()
    assert (result.outcome, result.may_have_run) == ("worker_died", True)
    assert "exit code 1" in result.text
    assert len(peer.calls) == 1
    # The next generation is found, with a ticket of its own.
    assert bus.call(ECHO).ok
    assert peer.calls[-1].generation == 2


def test_a_route_to_a_generation_that_ended_is_resolved_again(peer: Peer, bus: Client) -> None:
    assert bus.call(ECHO).ok
    peer.do(peer.kill_worker)
    bus.status()  # its answer comes after the news
    assert bus.call(ECHO).ok
    assert [call.generation for call in peer.calls] == [1, 2]


def test_news_that_came_while_nobody_waited(peer: Peer, bus: Client) -> None:
    assert bus.call(ECHO).ok
    peer.do(peer.kill_worker)
    api = bus._line._api
    assert api.poll(5000)  # it is here, and unread
    assert bus.call(ECHO).ok
    assert [call.generation for call in peer.calls] == [1, 2]


def test_a_refused_ticket_is_resolved_once_more(peer: Peer, bus: Client) -> None:
    assert bus.call(ECHO).ok
    peer.deny_next = 1
    assert bus.call(ECHO).ok
    assert kinds(peer).count(m.Resolve) == 2
    peer.deny_next = 2
    assert bus.call(ECHO).outcome == "denied"
    assert kinds(peer).count(m.Resolve) == 3


def test_a_fresh_refusal_is_the_last_word(peer: Peer, bus: Client) -> None:
    peer.deny_next = 5
    assert bus.call(ECHO).outcome == "denied"
    assert kinds(peer).count(m.Resolve) == 1


def test_a_name_that_is_unknown_comes_with_candidates(bus: Client) -> None:
    result = bus.call("mcp:tset/echo")
    assert result.outcome == "not_found"
    assert ECHO in result.text


def test_what_the_supervisor_refuses(peer: Peer, bus: Client) -> None:
    peer.refuse[ECHO] = m.Reply(id=0, code="unavailable", message="Down.", fix="interlock start x")
    result = bus.call(ECHO)
    assert (result.outcome, result.may_have_run) == ("unavailable", False)
    assert result.text == "Down. Try: interlock start x"
    peer.refuse[ECHO] = m.Reply(id=0, code="internal", message="A fault.")
    with pytest.raises(InterlockError) as caught:
        bus.call(ECHO)
    assert caught.value.code == "internal"
    with pytest.raises(InterlockError):
        bus.resolve(ECHO)


def test_resolve_by_hand(bus: Client) -> None:
    route = bus.resolve(ECHO)
    assert (route.local, route.target.worker, route.target.generation) == ("echo", WORKER, 1)


def test_a_turn_is_streamed(bus: Client) -> None:
    items = list(bus.turn("say one two", agent="main"))
    assert [item["type"] for item in items] == [
        "turn.started",
        "text.delta",
        "text.delta",
        "turn.completed",
    ]
    assert [item["offset"] for item in items] == [0, 1, 2, 3]
    again = list(bus.watch(items[0]["turn"], offset=2))
    assert again == items[2:]


def test_a_long_turn_needs_credit(peer: Peer, bus: Client) -> None:
    words = " ".join(str(n) for n in range(2000))
    items = list(bus.turn(f"say {words}"))
    assert [item["offset"] for item in items] == list(range(2002))
    assert m.TurnCredit in kinds(peer)


def test_other_work_while_a_turn_is_watched(peer: Peer, bus: Client) -> None:
    seen = []
    stream = bus.turn("wait", id="a" * 32)
    seen.append(next(stream)["type"])
    assert bus.call(ECHO).ok
    other = [item["type"] for item in bus.turn("say hello")]
    assert other[-1] == "turn.completed"
    assert bus.turn_show("a" * 32)["state"] == "running"
    assert bus.turn_cancel("a" * 32)["state"] == "cancelled"
    seen.extend(item["type"] for item in stream)
    assert seen == ["turn.started", "turn.cancelled"]


def test_the_same_id_is_the_same_turn(bus: Client) -> None:
    first = list(bus.turn("say hello", id="b" * 32))
    assert list(bus.turn("say hello", id="b" * 32)) == first


def test_a_watch_that_is_left_early_is_ended(peer: Peer, bus: Client) -> None:
    stream = bus.turn("wait")
    next(stream)
    del stream
    bus.status()
    assert m.TurnUnwatch in kinds(peer)
    assert peer.do(lambda: peer._watches) == {}


def test_an_unknown_turn(bus: Client) -> None:
    with pytest.raises(NotFoundError):
        next(bus.watch("c" * 32))


def test_no_supervisor(tmp_path: Path) -> None:
    with pytest.raises(NoSupervisorError, match="interlock up"):
        connect(tmp_path)


def test_a_connection_file_of_the_dead(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with Peer(tmp_path, pid=dead.pid), pytest.raises(NoSupervisorError, match="interlock up"):
        connect(tmp_path)


def test_a_supervisor_that_dies(tmp_path: Path) -> None:
    """Its process is a zombie here, as the child of a test or a shell script would be."""
    with subprocess.Popen(["sleep", "60"]) as alive, Peer(tmp_path, pid=alive.pid) as peer:
        with connect(tmp_path) as bus:
            bus.status()
            stream = bus.turn("wait")
            next(stream)
            events = bus.events()
            next(events)
            peer.mute = {m.StatusGet, m.ReplayGet, m.SnapshotGet}
            alive.kill()
            with pytest.raises(ConnectionLostError, match="gone"):
                bus.call("mcp:test/mute")
            with pytest.raises(ConnectionLostError):
                next(stream)
            with pytest.raises(ConnectionLostError):
                next(events)
            with pytest.raises(ConnectionLostError):
                bus.status()


def test_a_supervisor_that_does_not_answer(peer: Peer, bus: Client) -> None:
    peer.mute = {m.StatusGet}
    with pytest.raises(RequestTimeoutError, match="did not answer"):
        bus.request(m.StatusGet, timeout=0.1)
    assert bus.turns() == {"turns": []}


def test_another_supervisor_took_over(peer: Peer, bus: Client) -> None:
    bus.status()
    peer.do(peer.restart)
    with pytest.raises(UnauthorizedError):
        bus.status()


_SHORT = """
import os, resource, sys
import interlock.bus.calling, interlock.bus.edge
from interlock.bus import connect
from interlock.bus.errors import InterlockError

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
for free in range(16):
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, hard))
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for one in range(free):
        os.close(held.pop())
    said = ""
    try:
        with connect(sys.argv[1]) as bus:
            bus.status()
            said = bus.call("mcp:test/echo", {}).outcome
    except InterlockError as error:
        said = error.code
    for one in held:
        os.close(one)
    print(free, said)
"""


def test_a_program_without_descriptors_gets_an_error_or_an_outcome(peer: Peer) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SHORT, str(peer.home.path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    said = [line.split()[1] for line in done.stdout.splitlines()]
    assert len(said) == 16 and said[-1] == "ok" and "unavailable" in said


def test_wrong_use(peer: Peer) -> None:
    bus = connect(peer.home.path)
    with pytest.raises(UsageError):
        bus.call(ECHO, {"x": object()})
    with pytest.raises(UsageError):
        bus.call(ECHO, ["not", "a", "mapping"])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="64 MiB"):
        bus.call(ECHO, {"x": "x" * (64 << 20)})
    with pytest.raises(UsageError):
        bus.request(m.StatusGet, nonsense=1)
    with pytest.raises(UsageError):
        bus.events(since="yesterday")
    bus.close()
    bus.close()
    with pytest.raises(UsageError, match="closed"):
        bus.status()


def test_a_stream_of_a_closed_client(peer: Peer) -> None:
    with connect(peer.home.path) as client:
        events, items = client.events(), client.watch("a" * 32)
        next(events)
    for stream in (events, items):
        with pytest.raises(UsageError, match="closed"):
            next(stream)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_times_that_no_call_can_have(bus: Client, seconds: float) -> None:
    with pytest.raises(UsageError, match="number of seconds"):
        bus.call(ECHO, timeout=seconds)
    with pytest.raises(UsageError, match="number of seconds"):
        bus.call(ECHO, timeout_max=seconds)


def test_a_worker_that_is_not_there_is_not_waited_for(
    peer: Peer, bus: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge, "CONNECT_GRACE", 0.1)
    peer.do(peer.lose_worker)
    result = bus.call(ECHO, timeout=60)
    assert (result.outcome, result.may_have_run) == ("unavailable", False)


def test_one_client_per_thread(bus: Client) -> None:
    raised: list[UsageError] = []

    def use() -> None:
        try:
            bus.status()
        except UsageError as error:
            raised.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "thread" in raised[0].message


@pytest.mark.parametrize("what", ["call", "turn", "events", "request"])
def test_an_interrupt_ends_a_wait_at_once(peer: Peer, what: str) -> None:
    # A shell has background jobs ignore this signal.
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    before = set(os.listdir("/proc/self/fd"))
    peer.mute = {m.StatusGet}

    def wait(bus: Client) -> None:
        match what:
            case "call":
                bus.call("mcp:test/mute", timeout=60)
            case "turn":
                list(bus.turn("wait"))
            case "events":
                list(bus.events())
            case _:
                bus.request(m.StatusGet, timeout=60)

    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    with connect(peer.home.path) as bus:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            wait(bus)
    timer.join()
    signal.signal(signal.SIGINT, usual)
    # The peer's own accepted connections end when it notices; wait for that, not for a time.
    while set(os.listdir("/proc/self/fd")) - before:
        peer.do(lambda: None)


def test_importing_the_bus_loads_only_zmq_and_msgspec() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "from interlock.bus import connect\n"
        "roots = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(roots - sys.stdlib_module_names - {'interlock'}))\n"
        "print('asyncio' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    roots, has_asyncio = done.stdout.splitlines()
    # typing_extensions comes with msgspec where it is installed, the rest with Cython.
    assert {root for root in roots.split() if "cython" not in root} <= {
        "zmq",
        "msgspec",
        "typing_extensions",
    }
    assert has_asyncio == "False"
