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
        await anext(seen)
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


def test_what_changes_while_the_first_reading_is_under_way_is_told(tmp_path: Path) -> None:
    file = tmp_path / "interlock.toml"

    async def follow() -> None:
        seen = changes(lambda: (file,))
        await anext(seen)
        file.write_text("a = 1")
        async with asyncio.timeout(4):
            await anext(seen)
        await seen.aclose()

    asyncio.run(follow())


def test_a_folder_whose_name_is_no_text_is_looked_at_all_the_same(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()

    async def follow() -> None:
        seen = changes(lambda: (folder / "interlock.toml",))
        await anext(seen)
        (folder / "interlock.toml").write_text("a = 1")
        async with asyncio.timeout(10):
            await anext(seen)
        await seen.aclose()

    asyncio.run(follow())
