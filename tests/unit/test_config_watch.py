"""Changes of files are noticed within 2 seconds, whatever an editor does."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from interlock.supervisor.config import changes


def test_files_that_appear_change_and_are_replaced(tmp_path: Path) -> None:
    plain = tmp_path / "interlock.toml"
    late = tmp_path / "missing" / "deeper" / "interlock.toml"
    plain.write_text("a = 1")

    async def follow() -> None:
        seen = changes(lambda: (plain, late))
        for change in (
            lambda: plain.write_text("a = 22"),
            lambda: (late.parent.mkdir(parents=True), late.write_text("b = 1")),
            lambda: (
                late.with_name("t").write_text("b = 2"),
                os.replace(late.with_name("t"), late),
            ),
            lambda: plain.unlink(),
        ):
            waiting = asyncio.ensure_future(anext(seen))
            await asyncio.sleep(0)
            change()
            async with asyncio.timeout(4):
                await waiting
        await seen.aclose()

    asyncio.run(follow())
