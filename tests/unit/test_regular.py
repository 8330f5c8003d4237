from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from interlock.bus.regular import regular

WRITE = os.O_WRONLY | os.O_CREAT | os.O_APPEND


@pytest.mark.parametrize("flags", [os.O_RDONLY, WRITE, os.O_RDWR])
@pytest.mark.parametrize("kind", ["pipe", "read pipe", "socket", "folder"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str, flags: int) -> None:
    path, before = tmp_path / "x", len(os.listdir("/proc/self/fd"))
    with socket.socket(socket.AF_UNIX) as listener:
        if kind.endswith("pipe"):
            os.mkfifo(path)
        elif kind == "socket":
            listener.bind(os.fspath(path))
        else:
            path.mkdir()
        other = os.open(path, os.O_RDWR) if kind == "read pipe" else -1
        with pytest.raises(OSError):
            os.close(regular(path, flags))
        if other >= 0:
            os.close(other)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_is_opened_and_made_for_its_owner_alone(tmp_path: Path) -> None:
    with open(tmp_path / "x", "ab", opener=regular) as file:
        file.write(b"a")
        assert not os.get_inheritable(file.fileno())
    with open(tmp_path / "x", "rb", opener=regular) as file:
        assert file.read() == b"a"
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600
    os.close(regular(os.devnull, WRITE))
