"""The wheel, built from this tree and installed into an empty environment as users get it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PORTIONS = ("bus", "workers", "supervisor")


def run(*command: str | Path, **options: Any) -> str:
    """Run a command to its end, check that it succeeds, and return what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=230, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder]
    run(*build, ROOT, cwd=folder)
    (built,) = folder.glob("interlock-*.whl")
    return built


@pytest.mark.timeout(120)
def test_the_wheel_holds_the_three_portions_and_no_tests(wheel: Path) -> None:
    expected = {
        str(path.relative_to(ROOT / portion))
        for portion in PORTIONS
        for path in (ROOT / portion / "interlock").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith("METADATA"))
        described = archive.read(metadata).decode()
    about = {name for name in names if name.partition("/")[0].endswith(".dist-info")}
    assert set(names) - about == expected
    assert {f"interlock/{portion}/py.typed" for portion in PORTIONS} <= expected
    assert "interlock/supervisor/demo/servers/mute.py" in expected
    assert "interlock/supervisor/bench/servers/tiny.py" in expected
    assert any(name.endswith("licenses/LICENSE") for name in about)
    assert "Provides-Extra: demo" in described


@pytest.mark.timeout(240)
def test_an_installed_wheel_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    place, temporary = tmp_path / "environment", tmp_path / "temporary"
    temporary.mkdir()
    run(sys.executable, "-m", "venv", "--without-pip", place)
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python"]
    run(*pip, "install", "--quiet", "--no-compile", f"interlock[demo] @ {wheel.as_uri()}")

    def user(*command: str) -> str:
        path = f"{place / 'bin'}:{os.defpath}"
        environment = {"PATH": path, "HOME": str(tmp_path), "TMPDIR": str(temporary)}
        return run(*command, env=environment, cwd=tmp_path)

    where = user("python", "-c", "import interlock.bus; print(interlock.bus.__file__)")
    assert Path(where).is_relative_to(place)
    assert user("interlock", "--version") == f"interlock {version('interlock')}\n"
    assert "the bad servers cost the turn" in user("interlock", "demo")
    assert list(temporary.iterdir()) == []
    assert set(tmp_path.iterdir()) == {place, temporary}, "it left something in HOME"
