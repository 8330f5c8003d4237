"""Changes of files are noticed within 2 seconds, whatever an editor does."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interlock.supervisor.config import changes
from interlock.supervisor.config.watch import LESS, Print, lost_much


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


def test_a_folder_that_cannot_be_looked_into_hides_no_other_file(tmp_path: Path) -> None:
    file = tmp_path / "interlock.toml"
    closed = Path("/" + "x" * 300, "interlock.toml")  # refused also to root, who may run this

    async def follow() -> None:
        seen = changes(lambda: (closed, file))
        await anext(seen)
        file.write_text("a = 1")
        async with asyncio.timeout(10):
            await anext(seen)
        await seen.aclose()

    asyncio.run(follow())


def test_no_thread_is_started_whatever_comes_and_goes(tmp_path: Path) -> None:
    """Where a limit on processes is reached, a thread that is started late may end everything."""
    late = tmp_path / "late" / "interlock.toml"

    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    async def follow() -> None:
        # As in the supervisor, the threads that look are there from the start.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        await asyncio.to_thread(threads)
        seen, before = changes(lambda: (late, tmp_path / "interlock.toml")), threads()
        await anext(seen)
        for change in (lambda: late.parent.mkdir(), lambda: late.write_text("a = 1")):
            change()
        async with asyncio.timeout(4):
            await anext(seen)
        assert threads() == before
        waiting = asyncio.ensure_future(anext(seen))
        asyncio.get_running_loop().call_later(0.5, late.write_text, "a = 22")
        asyncio.get_running_loop().call_later(0.4, lambda: counted.append(threads()))
        counted: list[int] = []
        async with asyncio.timeout(4):
            await waiting
        assert counted == [before]
        await seen.aclose()

    asyncio.run(follow())


def sized(**sizes: int) -> dict[Path, Print]:
    return {
        Path(name): Print(written=1, size=size, inode=1, changed=1) for name, size in sizes.items()
    }


@pytest.mark.parametrize(
    ("before", "now", "much"),
    [
        (sized(a=100), sized(a=101), False),
        (sized(a=100), sized(a=50), False),
        (sized(a=100), sized(a=49), True),
        (sized(a=100), sized(a=0), True),
        (sized(a=100, b=1), sized(a=100), True),
        (sized(a=0), sized(a=0), False),
        (sized(), sized(a=0), False),
    ],
)
def test_what_counts_as_having_lost_much(
    before: dict[Path, Print], now: dict[Path, Print], much: bool
) -> None:
    assert lost_much(before, now) is much


def test_a_file_that_is_written_anew_is_told_of_when_it_is_whole(tmp_path: Path) -> None:
    """What it says while it is empty would end every server and take away every rule."""
    file = tmp_path / "interlock.toml"
    file.write_text("a = 1\n" * 100)

    async def follow() -> None:
        loop, told = asyncio.get_running_loop(), asyncio.Queue[int]()

        async def watch() -> None:
            async for _ in changes(lambda: (file,)):
                told.put_nowait(file.stat().st_size)

        watching = loop.create_task(watch())
        assert await told.get() == 600
        file.write_text("")
        loop.call_later(LESS * 0.6, file.write_text, "b = 1\n" * 100)
        async with asyncio.timeout(LESS * 4):
            assert await told.get() == 600
        assert file.read_text().startswith("b") and told.empty()
        watching.cancel()

    asyncio.run(follow())
