"""The journal on a disk that refuses: RLIMIT_FSIZE as a full one, and a read-only folder."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

FULL = """
    import asyncio, json, resource, sys
    from pathlib import Path
    from interlock.supervisor.events.journal import Journal, JournalBounds
    from interlock.supervisor.events.journalrows import TurnRow

    notices = []
    changed = asyncio.Event()

    def attention(code, message, fix, *, clear=False):
        notices.append((code, clear, message, fix))
        changed.set()

    async def until(code, clear):
        async with asyncio.timeout(20):
            while not any(row[:2] == (code, clear) for row in notices):
                changed.clear()
                await changed.wait()

    async def turn(journal, name, items):
        row = TurnRow(turn=name, agent="main", state="accepted", text="x")
        accepted = await journal.accept_turn(row)
        for n in range(items):
            journal.append_items(name, n, [b"y" * 10_000])
        done = TurnRow(turn=name, agent="main", state="completed", text="x", ended=1.0)
        return accepted, await journal.end_turn(done)

    async def main():
        bounds = JournalBounds(retry=0.05)
        journal = Journal(Path(sys.argv[1]), "e1", attention, bounds)
        await journal.open()
        before = await turn(journal, "before", 3)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        during = [await turn(journal, f"during{n}", 20) for n in range(5)]
        await until("journal_full", False)
        held = [journal.holds(f"during{n}") for n in range(5)]
        degraded = journal.degraded
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        await until("journal_full", True)
        after = await turn(journal, "after", 3)
        rows = {row.turn: row.state for row in await journal.turns(100)}
        items = {name: len(await journal.items(name)) for name in rows}
        await journal.close()
        print(json.dumps([before, during, held, degraded, after, rows, items, notices]))

    asyncio.run(main())
"""


def test_turns_go_on_while_the_disk_is_full_and_are_written_when_it_is_not(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FULL), str(tmp_path / "j.sqlite3")],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, during, held, degraded, after, rows, items, notices = json.loads(done.stdout)
    assert before == [True, True] and after == [True, True]
    assert during[-1] == [False, False]
    assert degraded and not held[-1]
    names = ["before", *(f"during{n}" for n in range(5)), "after"]
    assert rows == dict.fromkeys(names, "completed")
    assert items == {name: 20 if name.startswith("during") else 3 for name in names}
    code, cleared, message, fix = notices[0]
    assert (code, cleared) == ("journal_full", False)
    assert "only in memory" in message and "Free some space" in fix


READ_ONLY = """
    import asyncio, json, os, sys
    from pathlib import Path
    from interlock.bus.errors import JournalError
    from interlock.supervisor.events.journal import Journal, JournalBounds
    from interlock.supervisor.events.journalrows import TurnRow

    notices = []
    fixes = []
    changed = asyncio.Event()

    def attention(code, message, fix, *, clear=False):
        notices.append((code, clear))
        fixes.append(fix)
        changed.set()

    async def until(code, clear):
        async with asyncio.timeout(20):
            while (code, clear) not in notices:
                changed.clear()
                await changed.wait()

    async def main():
        folder = Path(sys.argv[1])
        # Root may write everywhere, so it becomes somebody else for a while.
        os.chmod(folder, 0o555)
        if os.geteuid() == 0:
            os.seteuid(65534)
        journal = Journal(folder / "j.sqlite3", "e1", attention, JournalBounds(retry=0.05))
        await journal.open()
        await until("journal_full", False)
        row = TurnRow(turn="t1", agent="main", text="x")
        accepted = await journal.accept_turn(row)
        journal.append_items("t1", 0, [b"{}"])
        ended = await journal.end_turn(TurnRow(turn="t1", agent="main", state="completed"))
        if os.getuid() == 0:
            os.seteuid(0)
        os.chmod(folder, 0o755)
        await until("journal_full", True)
        stored = (await journal.turn("t1")).state
        items = len(await journal.items("t1"))
        await journal.close()
        print(json.dumps([accepted, ended, stored, items, fixes[0]]))

    asyncio.run(main())
"""


def test_a_read_only_folder_is_survived_and_written_to_once_it_is_writable() -> None:
    # Not below pytest's own folder, which only its owner may enter.
    with tempfile.TemporaryDirectory(prefix="journal-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(READ_ONLY), folder],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    *found, fix = json.loads(done.stdout)
    assert found == [False, False, "completed", 1]
    assert fix.startswith("Let this user read and write") and "pace" not in fix
