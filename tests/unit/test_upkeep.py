"""How long a home may be away before its supervisor ends."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from interlock.bus.endpoints import ConnectionInfo, Home, HomeLock
from interlock.bus.settings import Timing
from interlock.supervisor import upkeep
from interlock.supervisor.upkeep import Upkeep


@pytest.mark.parametrize(("away", "looks"), [(0.01, 1), (0.04, 4)])
def test_a_home_may_be_away_as_long_as_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: float, looks: int
) -> None:
    monkeypatch.setattr(upkeep, "LOOK", 0.01)
    home = Home(tmp_path / "home")
    home.prepare()
    lock = HomeLock(home)
    looked: list[bool] = []
    lost: list[None] = []

    class Counting(Upkeep):
        def look(self) -> bool:
            looked.append(super().look())
            return looked[-1]

    def on_row(code: str, message: str, fix: str, *, clear: bool = False) -> None:
        raise AssertionError(message)

    info = ConnectionInfo(
        version="0", protocol=1, pid=1, api="", events="", key="", epoch="e", home=str(home.path)
    )
    keeper = Counting(
        home,
        lock,
        info,
        (),
        (),
        on_row,
        lambda what: None,
        lambda: lost.append(None),
        lambda: Timing(away=away),
    )
    shutil.rmtree(home.path)
    try:
        asyncio.run(asyncio.wait_for(keeper.watch(), 10))
    finally:
        lock.close()
    assert looked == [False] * looks and len(lost) == 1
