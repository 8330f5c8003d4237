"""Notes of agents: bounds, names, and that a write is whole or not at all."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from interlock.workers.core import notes as module
from interlock.workers.core.notes import MAX_NOTE, NoteError, Notes
from interlock.workers.core.worker import Refused, kind


def test_notes_come_back_as_they_were_written(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "notes")
    assert notes.all() == []
    assert notes.write("Einkauf für Köln / März", "Äpfel", False) == 6
    notes.write("Einkauf für Köln / März", ", Brot", True)
    assert notes.read("Einkauf für Köln / März") == "Äpfel, Brot"
    assert [note.name for note in notes.all()] == ["Einkauf für Köln / März"]
    assert all(path.parent == tmp_path / "notes" for path in (tmp_path / "notes").iterdir())
    notes.write("Einkauf für Köln / März", "", False)
    assert notes.all() == []


@pytest.mark.parametrize(
    "name", ["", "  ", ".hidden", "a\nb", "x" * 81, "\u00e4" * 80 * 2, "😀" * 40]
)
def test_names_that_no_note_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoteError):
        Notes(tmp_path).write(name, "x", False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x/../y", "/etc/passwd", "a/../../b", "%2e%2e", "-rf"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "notes"
    notes = Notes(folder)
    notes.write(name, "x", False)
    assert [note.name for note in notes.all()] == [name]
    assert list(tmp_path.iterdir()) == [folder]


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NOTES", 2)
    notes = Notes(tmp_path)
    notes.write("a", "x" * MAX_NOTE, False)
    with pytest.raises(NoteError, match="limit"):
        notes.write("a", "x", True)
    assert notes.read("a") == "x" * MAX_NOTE
    notes.write("b", "", True)
    with pytest.raises(NoteError, match="already"):
        notes.write("c", "x", False)
    notes.write("b", "again", False)
    with pytest.raises(NoteError, match="there are: a, b"):
        notes.read("c")


def test_links_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("no")
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").symlink_to(secret)
    notes = Notes(folder)
    assert notes.all() == []
    with pytest.raises(OSError):
        notes.read("a")
    notes.write("a", "mine", False)
    assert (secret.read_text(), notes.read("a")) == ("no", "mine")


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    os.mkfifo(tmp_path / "pipe.md")
    with open(os.open(tmp_path / "pipe.md", os.O_RDWR), "wb") as pipe:  # so nobody waits for ever
        pipe.write(b"x" * MAX_NOTE)
        for act in (lambda: notes.read("pipe"), lambda: notes.write("pipe", "more", True)):
            with pytest.raises(OSError, match="no regular file"):
                act()
    notes.write("pipe", "mine", False)
    assert notes.read("pipe") == "mine"


def test_a_write_that_nobody_waits_for_loses_no_other_line(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: notes.write("a", f"{n}\n", True), range(200)))
    assert sorted(map(int, notes.read("a").split())) == list(range(200))


def test_a_disk_that_hangs_keeps_three_threads_and_is_said_at_once() -> None:
    async def scenario() -> str:
        core, answers, begun = kind(), threading.Event(), [threading.Event() for _ in range(3)]

        def hang(here: threading.Event) -> None:
            here.set()
            answers.wait()

        try:
            for here in begun:
                asked = asyncio.ensure_future(core._at_disk(partial(hang, here)))
                await asyncio.to_thread(here.wait)
                asked.cancel()
                await asyncio.wait((asked,))
            async with asyncio.timeout(5):
                with pytest.raises(Refused) as refused:
                    await core._at_disk(lambda: None)
        finally:
            answers.set()
        return refused.value.message

    assert asyncio.run(scenario()).endswith("the disk did not answer in time.")
