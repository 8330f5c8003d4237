"""Apps with keys of their own: they may ask, and never answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from peers import Peer, context
from turn_rig import rig

from interlock.bus import messages as m
from interlock.bus.codec import decode_api_answer
from interlock.bus.settings import PolicySettings
from interlock.supervisor.api.approvals import ApprovalApi
from interlock.supervisor.api.server import Api
from interlock.supervisor.api.turns import TurnApi
from interlock.supervisor.links import Links

PERSON, APP = "p" * 64, "a" * 64
ECHO = "mcp:git/git_log"


def send(peer: Peer, key: str, **fields: Any) -> None:
    peer.send(b"json", json.dumps({"id": 1, "key": key, **fields}).encode(), b"{}")


async def reply(peer: Peer) -> m.Reply:
    frames = await peer.receive()
    found = decode_api_answer(frames[0], frames[1])
    assert isinstance(found, m.Reply)
    return found


def test_an_app_cannot_answer_what_it_or_anybody_asked(tmp_path: Path) -> None:
    async def story() -> None:
        async with context() as ctx, rig(tmp_path / "j.sqlite3") as made:
            made.runtime.rules = PolicySettings(ask=(ECHO,))
            made.server()
            address = f"ipc://{tmp_path}/api"
            keys: Any = {PERSON: "person", APP: "app"}
            api = Api(ctx, address, keys, lambda *_: None, lambda _: None)
            links = Links(api, made.turns, made.api, made.tickets, lambda _: None)
            approvals = ApprovalApi(made.turns.approvals, made.journal, api.role)
            handlers: Any = {m.Resolve: links.resolve} | approvals.table()
            api.serve(handlers, frozenset({m.Resolve}))
            app, other, person = (Peer(ctx, address, name) for name in (b"app", b"two", b"me"))
            for said in ("yes", "no"):
                send(app, APP, type="resolve", capability=ECHO, approval=said)
                assert (await reply(app)).code == "denied"
            send(app, APP, type="resolve", capability=ECHO)
            await made.until(lambda: made.turns.approvals.rows())
            (row,) = made.turns.approvals.rows()
            for peer in (app, other):
                for answer in ("approve", "deny"):
                    send(peer, APP, type=answer, approval=row["id"])
                    assert (await reply(peer)).code == "denied"
            assert made.turns.approvals.rows()
            send(person, PERSON, type="approve", approval=row["id"])
            assert (await reply(person)).code == "ok"
            assert (await reply(app)).code == "ok"
            (stored,) = await made.journal.approvals(5)
            assert (stored.caller, stored.by) == (f"api:{b'app'.hex()}", f"api:{b'me'.hex()}")
            await api.close()
            for peer in (app, other, person):
                peer.close()

    asyncio.run(story())


def test_who_may_decide_nothing_has_nobody_written_to(tmp_path: Path) -> None:
    """Whether a caller is still there is found out by writing to it; decisions that are refused
    cannot make that often."""

    async def story() -> None:
        async with context() as ctx, rig(tmp_path / "j.sqlite3") as made:
            made.runtime.rules = PolicySettings(ask=(ECHO,))
            made.server()
            address = f"ipc://{tmp_path}/api"
            api = Api(ctx, address, {PERSON: "person", APP: "app"}, lambda *_: None, lambda _: None)
            looks: list[bytes] = []

            def present(identity: bytes) -> bool:
                looks.append(identity)
                return True

            turns = TurnApi(made.turns, present=present)
            approvals = ApprovalApi(made.turns.approvals, made.journal, api.role, look=turns.look)
            handlers: Any = {m.Resolve: turns.resolve} | approvals.table()
            api.serve(handlers, frozenset({m.Resolve}))
            asking, other = Peer(ctx, address, b"me"), Peer(ctx, address, b"app")
            send(asking, PERSON, type="resolve", capability=ECHO)
            await made.until(lambda: made.turns.approvals.rows())
            (row,) = made.turns.approvals.rows()
            for _ in range(200):
                send(other, APP, type="approve", approval=row["id"])
                assert (await reply(other)).code == "denied"
            assert 1 <= len(looks) < 50
            send(asking, PERSON, type="deny", approval=row["id"])
            await reply(asking)
            await api.close()
            for peer in (asking, other):
                peer.close()

    asyncio.run(story())
