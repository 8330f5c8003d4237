"""The load that `bench` compares with is all that the bad neighbours cost."""

from __future__ import annotations

from pathlib import Path

from interlock.supervisor.bench import stall
from interlock.supervisor.home.temporary import TemporaryInterlock, wait_ready


def test_the_client_that_fetches_counts_beside_the_server_it_fetches_from(tmp_path: Path) -> None:
    configuration = stall._configuration()
    with TemporaryInterlock(configuration, tmp_path) as interlock, interlock.connect() as bus:
        wait_ready(bus, {"mcp:good", "mcp:big", "mcp:flood"}, 30)
        for name in ("mcp:mute", "mcp:crash", "mcp:flood"):
            bus.control("stop", name)
        with stall._mover(interlock) as mover:
            # The first rounds may be over before the client has begun.
            rounds = (stall._shares(bus, stall._Calls(), mover) for _ in range(20))
            assert any(len(shares) == 2 for shares in rounds)
