"""The other side of a client: real sockets that speak the protocol, in a thread, on order.

It is a small supervisor with one serving worker, `mcp:test`. What it does with each request stands
in one method each; tests change its fields and tell it, through `do`, what happens next.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

import msgspec
import zmq

from interlock.bus import messages as m
from interlock.bus.codec import (
    decode_api_request,
    decode_data_up,
    encode,
    encoding_of,
)
from interlock.bus.endpoints import ConnectionInfo, Home, HomeLock, endpoint, write_connection
from interlock.bus.errors import MalformedError, TicketError
from interlock.bus.events import Event, WorkerReady, WorkerStarting
from interlock.bus.records import Target
from interlock.bus.tickets import TicketClaims, mint, verify
from interlock.supervisor.home.runfolders import undisturbed

T = TypeVar("T")
WORKER = "mcp:test"
KEY = b"k" * 32
ECHO = "mcp:test/echo"


class Peer:
    """A supervisor and its worker. Use it in a `with` block; `do` runs a function in its thread."""

    def __init__(self, path: Path, pid: int | None = None) -> None:
        self.home = Home(path)
        self.home.make()
        self._lock: HomeLock | None = None
        if pid is None:  # else the process that it pretends to be has none either
            with undisturbed(self.home):  # without it, others that start sweep the sockets away
                self._lock = HomeLock(self.home)
        self.home.prepare()
        self.pid = os.getpid() if pid is None else pid
        self.epoch = "epoch-1"
        self.key = "secret-1"
        self.generation = 1
        self.seq = 0
        self.kept: list[Event] = []
        self.requests: list[m.ApiRequest] = []
        """Every request that came, in order."""
        self.calls: list[m.Call] = []
        self.cancelled: list[int] = []
        self.mute: set[type[m.Request]] = set()
        """Requests that get no answer."""
        self.refuse: dict[str, m.Reply] = {}
        """Answers to `resolve` by capability."""
        self.deny_next = 0
        """Calls that are answered with `denied`."""
        self.life = 60.0
        self.turns: dict[str, list[dict[str, Any]]] = {}
        self.ended: set[str] = set()
        self.replay_gap = False
        self._watches: dict[tuple[bytes, int], list[Any]] = {}
        self._api_clients: dict[bytes, bytes] = {}
        self._opened: dict[bytes, dict[str, TicketClaims]] = {}
        self._chunks: dict[tuple[bytes, int], tuple[list[bytes], int, bytes]] = {}
        self._credit: dict[tuple[bytes, int], int] = {}
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="bus peer", daemon=True)
        self._ready = threading.Event()
        self._stopping = False
        self._failure: BaseException | None = None

    def __enter__(self) -> Peer:
        self._thread.start()
        assert self._ready.wait(10), self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        def stop() -> None:
            self._stopping = True

        if self._thread.is_alive():
            self.do(stop)
        self._thread.join(10)
        if self._lock is not None:
            self._lock.close()
        if self._failure is not None:
            raise self._failure

    def do(self, action: Callable[[], T]) -> T:
        """Run a function in the peer's thread and return what it returns."""
        done: SimpleQueue[T | BaseException] = SimpleQueue()

        def work() -> None:
            try:
                done.put(action())
            except BaseException as error:  # noqa: BLE001 - handed to the test
                done.put(error)

        self._work.put(work)
        result = done.get(timeout=10)
        if isinstance(result, BaseException):
            raise result
        return result

    # --- what happens on order, in the peer's thread ---

    def publish(self, event: Event, *, lose: bool = False) -> None:
        """Number an event and send it, or lose it on the way."""
        self.seq += 1
        stamped = msgspec.structs.replace(event, epoch=self.epoch, seq=self.seq, time=time.time())
        self.kept.append(stamped)
        if not lose:
            for encoding in ("json", "msgpack"):
                self._events.send_multipart([encoding.encode(), encode(stamped, encoding)])

    def add_items(self, turn: str, items: Iterable[dict[str, Any]], *, end: bool = False) -> None:
        """Add items to a turn and stream them to who watches."""
        log = self.turns.setdefault(turn, [])
        for item in items:
            log.append({**item, "turn": turn, "offset": len(log)})
        if end:
            self.ended.add(turn)
        for watch in tuple(self._watches):
            self._stream(watch)

    def kill_worker(self, *, revive: bool = True) -> None:
        """Let the worker's generation end, and the next one serve."""
        self._data.close(0)
        self._poller.unregister(self._data)
        gone = m.Gone(worker=WORKER, generation=self.generation, reason="exit code 1")
        for identity, encoding in self._api_clients.items():
            self._send_api(identity, encoding, gone)
        if revive:
            self.generation += 1
            self.publish(WorkerStarting(name=WORKER, generation=self.generation))
            self._bind_data()
            self.publish(WorkerReady(name=WORKER, generation=self.generation, tools=4))

    def lose_worker(self) -> None:
        """Let the worker end without a word to anybody."""
        self._poller.unregister(self._data)
        self._data.close(0)

    def restart(self) -> None:
        """Become another supervisor on the same home."""
        self.epoch, self.key, self.seq, self.kept = "epoch-2", "secret-2", 0, []
        self._watches.clear()
        self._api_clients.clear()
        self._write_connection()

    # --- the thread ---

    def _run(self) -> None:
        self._ctx: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._poller = zmq.Poller()
        try:
            self._api = self._bind(zmq.ROUTER, endpoint(self.home, "api"))
            self._events = self._bind(zmq.XPUB, endpoint(self.home, "events"))
            self._bind_data()
            self._write_connection()
            self._ready.set()
            while not self._stopping:
                self._turn_of_the_loop()
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            self._failure = error
        finally:
            self._ctx.destroy(0)

    def _turn_of_the_loop(self) -> None:
        ready = dict(self._poller.poll(5))
        while not self._work.empty():
            self._work.get()()
        if self._api in ready:
            self._on_api(self._api.recv_multipart())
        if self._events in ready:
            self._events.recv_multipart()
        if self._data in ready and not self._data.closed:
            self._on_data(self._data.recv_multipart())

    def _bind(self, kind: int, address: str) -> zmq.Socket[bytes]:
        sock = self._ctx.socket(kind)
        sock.linger = 0
        sock.bind(address)
        self._poller.register(sock, zmq.POLLIN)
        return sock

    def _bind_data(self) -> None:
        self._opened.clear()
        address = endpoint(self.home, "data", WORKER, self.generation)
        self._data = self._bind(zmq.ROUTER, address)

    def _write_connection(self) -> None:
        write_connection(
            self.home,
            ConnectionInfo(
                version="0.0",
                protocol=m.PROTOCOL,
                pid=self.pid,
                api=endpoint(self.home, "api"),
                events=endpoint(self.home, "events"),
                key=self.key,
                epoch=self.epoch,
                home=str(self.home.path),
            ),
        )

    # --- the api plane ---

    def _send_api(
        self, identity: bytes, encoding: bytes, message: Any, document: Any = None
    ) -> None:
        frames = [identity, encoding, encode(message, "json" if encoding == b"json" else "msgpack")]
        if document is not None:
            frames.append(msgspec.json.encode(document))
        self._api.send_multipart(frames)

    def _on_api(self, frames: list[bytes]) -> None:
        identity, encoding, header = frames[:3]
        body = frames[3] if len(frames) > 3 else None
        request = decode_api_request(encoding, header)
        self._api_clients[identity] = encoding
        self.requests.append(request)
        if type(request) in self.mute:
            return
        if request.key != self.key:
            reply = m.Reply(id=request.id, code="unauthorized", message="That key is wrong.")
            self._send_api(identity, encoding, reply)
            return
        answer = self._answer(identity, request, body)
        if isinstance(answer, m.Reply):
            reply = msgspec.structs.replace(answer, id=request.id)
            self._send_api(identity, encoding, reply)
        elif answer is not None:
            self._send_api(identity, encoding, m.Reply(id=request.id), answer)

    def _answer(self, identity: bytes, request: m.ApiRequest, body: bytes | None) -> Any:
        """Return a document, a reply that is not ok, or None for no reply."""
        match request:
            case m.StatusGet():
                return self._status()
            case m.SnapshotGet():
                return {"epoch": self.epoch, "seq": self.seq, "status": self._status()}
            case m.ReplayGet():
                if request.epoch != self.epoch or self.replay_gap:
                    return m.Reply(id=0, code="gap", message="These events are not kept.")
                return {"epoch": self.epoch, "events": self.kept[request.seq :]}
            case m.ToolsGet():
                return {"agent": request.agent, "capabilities": [], "withheld": []}
            case m.Resolve():
                return self._resolve(identity, request)
            case m.TurnStart():
                return self._start(request, msgspec.json.decode(body or b'""'))
            case m.TurnWatch():
                if request.turn not in self.turns:
                    return m.Reply(id=0, code="not_found", message="No such turn.")
                key = (identity, request.id)
                self._watches[key] = [request.turn, request.offset, request.credit]
                self._stream(key)
            case m.TurnCredit():
                if (identity, request.watch) in self._watches:
                    self._watches[identity, request.watch][2] += request.credit
                    self._stream((identity, request.watch))
            case m.TurnUnwatch():
                self._watches.pop((identity, request.watch), None)
            case m.TurnStop():
                self.add_items(request.turn, [{"type": "turn.cancelled"}], end=True)
                return {"turn": request.turn, "state": "cancelled"}
            case m.TurnsGet():
                return {"turns": [{"turn": turn} for turn in self.turns][: request.limit]}
            case m.TurnGet():
                state = "completed" if request.turn in self.ended else "running"
                return {"turn": request.turn, "state": state, "calls": []}
            case m.WorkerControl():
                self.kill_worker()
                return {"name": request.name, "state": "READY", "generation": self.generation}
            case m.Reload():
                return {"changed": [], "problems": []}
            case m.Shutdown():
                return {}
        return None

    def _status(self) -> dict[str, Any]:
        row = {"name": WORKER, "state": "READY", "generation": self.generation}
        return {"supervisor": {"pid": self.pid}, "workers": [row], "needs_attention": []}

    def _resolve(self, identity: bytes, request: m.Resolve) -> Any:
        if request.capability in self.refuse:
            return self.refuse[request.capability]
        if not request.capability.startswith(f"{WORKER}/"):
            return m.Reply(id=0, code="not_found", message=f"Did you mean {ECHO}?")
        local = request.capability.rpartition("/")[2]
        claims = TicketClaims(
            id=f"ticket-{len(self.requests)}",
            caller=identity.hex(),
            target=WORKER,
            generation=self.generation,
            names=(local,),
            expires=time.time() + self.life,
        )
        target = Target(
            worker=WORKER,
            generation=self.generation,
            endpoint=endpoint(self.home, "data", WORKER, self.generation),
            ticket=mint(KEY, claims),
            expires_in=self.life,
        )
        return {
            "capability": request.capability,
            "local": local,
            "timeout": 5.0,
            "timeout_max": 20.0,
            "target": target,
        }

    def _start(self, request: m.TurnStart, text: str) -> Any:
        if request.turn not in self.turns:
            self.turns[request.turn] = []
            started = {"type": "turn.started", "agent": request.agent, "model": "", "offered": 1}
            items: list[dict[str, Any]] = [started]
            if text.startswith("say "):
                words = text.removeprefix("say ").split()
                items += [{"type": "text.delta", "text": word} for word in words]
                items.append({"type": "turn.completed", "text": " ".join(words)})
                self.add_items(request.turn, items, end=True)
            else:
                self.add_items(request.turn, items)
        return {"turn": request.turn, "state": "running"}

    def _stream(self, key: tuple[bytes, int]) -> None:
        turn, offset, credit = self._watches[key]
        log = self.turns[turn]
        while credit and offset < len(log):
            batch = log[offset : offset + min(credit, 7)]
            end = turn in self.ended and offset + len(batch) == len(log)
            items = m.Items(id=key[1], turn=turn, offset=offset, count=len(batch), end=end)
            self._send_api(key[0], self._api_clients[key[0]], items, batch)
            offset, credit = offset + len(batch), credit - len(batch)
            if end:
                del self._watches[key]
                return
        self._watches[key] = [turn, offset, credit]

    # --- the data plane ---

    def _on_data(self, frames: list[bytes]) -> None:
        identity, header = frames[:2]
        encoding = encoding_of(header)

        def send(message: Any, body: bytes | None = None) -> None:
            head = [identity, encode(message, encoding)]
            self._data.send_multipart(head if body is None else [*head, body])

        try:
            message = decode_data_up(header)
        except MalformedError as error:
            send(m.Failure(id=0, code="invalid_arguments", message=error.message))
            return
        match message:
            case m.Open():
                try:
                    claims = verify(KEY, message.ticket, time.time(), WORKER, self.generation)
                except TicketError as error:
                    send(m.Failure(id=0, code="denied", message=error.message))
                    return
                self._opened.setdefault(identity, {})[claims.id] = claims
                send(m.Opened(ticket=claims.id))
            case m.Cancel():
                self.cancelled.append(message.id)
            case m.Credit():
                key = (identity, message.id)
                if key in self._chunks:
                    self._credit[key] += message.n
                    self._send_chunks(key, send)
            case m.Call():
                self._on_call(identity, message, frames[2] if len(frames) > 2 else b"", send)

    def _on_call(
        self, identity: bytes, call: m.Call, body: bytes, send: Callable[..., None]
    ) -> None:
        claims = self._opened.get(identity, {}).get(call.ticket)
        if claims is None or call.name not in claims.names or self.deny_next:
            self.deny_next = max(0, self.deny_next - 1)
            send(m.Failure(id=call.id, code="denied", message="No ticket for that."))
            return
        self.calls.append(call)
        arguments = msgspec.json.decode(body)
        match call.name:
            case "echo":
                content = [{"type": "text", "text": body.decode()}]
                result = {"content": content, "structuredContent": arguments}
                send(m.Result(id=call.id, duration_ms=1.5), msgspec.json.encode(result))
            case "big":
                text = "x" * arguments["size"]
                whole = msgspec.json.encode({"content": [{"type": "text", "text": text}]})
                parts = [whole[i : i + m.CHUNK] for i in range(0, len(whole), m.CHUNK)]
                key = (identity, call.id)
                self._chunks[key] = (parts[:-1], 0, parts[-1])
                self._credit[key] = m.CHUNK_WINDOW
                self._send_chunks(key, send)
            case "progress":
                for n in range(1, 4):
                    send(m.Progress(id=call.id, progress=n, total=3, message=f"step {n}"))
                send(m.Result(id=call.id, duration_ms=2.0), b'{"content": []}')
            case "broken":
                send(
                    m.Result(id=call.id, outcome="tool_error"), b'{"content": [], "isError": true}'
                )
            case "garbage":
                send(m.Result(id=call.id), b"{not json")
            case "overloaded":
                send(m.Failure(id=call.id, code="overloaded", message="The queue is full."))
            case "mute":
                send(m.Log(level="info", message="I will not answer."))

    def _send_chunks(self, key: tuple[bytes, int], send: Callable[..., None]) -> None:
        parts, sent, last = self._chunks[key]
        while sent < len(parts) and self._credit[key]:
            send(m.Chunk(id=key[1], n=sent), parts[sent])
            sent += 1
            self._credit[key] -= 1
        self._chunks[key] = (parts, sent, last)
        if sent == len(parts):
            del self._chunks[key], self._credit[key]
            send(m.Result(id=key[1], duration_ms=3.0), last)
