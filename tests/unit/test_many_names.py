"""283 tools of nine servers: every name legal, distinct, and the same whoever came first."""

from __future__ import annotations

import random
import re

import msgspec
from odd_servers import SERVERS, TOOLS

from interlock.bus.names import CapabilityName, WireNames, WorkerName
from interlock.bus.records import CapabilityReport
from interlock.bus.settings import AgentSettings, McpServerSettings, PolicySettings
from interlock.supervisor.catalog.offer import make_offer, offer_row
from interlock.supervisor.catalog.rows import Catalog


def catalog(order: random.Random) -> Catalog:
    """The catalog after a start in which everything happens in a random order."""
    made = Catalog()
    servers = list(SERVERS)
    order.shuffle(servers)
    for server in servers:
        made.configure(str(WorkerName("mcp", server)), McpServerSettings())
    order.shuffle(servers)
    for server in servers:
        tools = list(TOOLS[server])
        order.shuffle(tools)
        reports = [CapabilityReport(name=tool, digest="d" * 64) for tool in tools]
        made.report(str(WorkerName("mcp", server)), reports)
    order.shuffle(servers)
    for server in servers:
        made.set_state(str(WorkerName("mcp", server)), "READY", "")
    return made


def test_names_are_legal_distinct_and_lead_back() -> None:
    rows = catalog(random.Random(0)).rows()
    assert len(rows) == 283
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", row.wire) for row in rows)
    assert len({row.wire for row in rows}) == len({row.name for row in rows}) == 283
    back = WireNames(row.capability for row in rows)
    found = {back.find(row.wire) for row in rows}
    assert found == {
        CapabilityName("mcp", server, tool) for server in SERVERS for tool in TOOLS[server]
    }


def test_twenty_starts_in_any_order_give_the_same_bytes() -> None:
    seen = set()
    for start in range(20):
        made = catalog(random.Random(start))
        agent = AgentSettings(focus=("mcp:1/*",))
        offer = make_offer(made.rows(), made.sources(), agent, PolicySettings())
        rows = tuple(offer_row(row, PolicySettings()) for row in offer.rows)
        seen.add(msgspec.json.encode((made.rows(), offer, rows)))
    assert len(seen) == 1
