"""Recognises command lines that would run Interlock: an agent must not control what runs it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from interlock.bus.regular import regular

OWN: Final = "interlock"
LAUNCHERS: Final = frozenset(
    "env sudo doas nohup nice ionice setsid timeout stdbuf xargs time watch script unshare nsenter "
    "chroot flock strace busybox sh bash dash zsh ksh fish uv uvx pipx poetry rye hatch pdm".split()
)
"""Programs whose arguments are, or hold, other commands."""
RUNNERS: Final = frozenset(
    "runpy cProfile profile pdb trace timeit doctest unittest coverage debugpy pyinstrument "
    "memory_profiler line_profiler kernprof scalene viztracer pipx uv code IPython".split()
)
"""Python modules whose arguments are, or hold, other modules or code."""
HEAD: Final = 4096
"""Bytes of a script in which its import of Interlock is looked for."""
_PYTHON: Final = re.compile(r"(?:python|pypy)[0-9.]*w?")
_WORD: Final = re.compile(r"(?<![A-Za-z0-9_-])interlock(?![A-Za-z0-9_-])")
_MODULE: Final = re.compile(r"interlock(?:\.\w+)+")
_IMPORT: Final = re.compile(rb"^\s*(?:from|import)\s+interlock[.\s]", re.MULTILINE)


def runs_interlock(argv: Sequence[str], cwd: str) -> bool:
    """Whether a command line runs Interlock: by name, path, link, copy or module, also indirectly.

    `argv[0]` is the program's absolute path. Looks at files; what a program that is no launcher
    does with its arguments is its own business.

    >>> runs_interlock(("/usr/bin/python3", "-m", "interlock.supervisor.cli"), "/")
    True
    >>> runs_interlock(("/usr/bin/git", "commit", "-m", "interlock"), "/")
    False
    """
    if not argv:
        return False
    program, rest = argv[0], list(argv[1:])
    if _is_own(program):
        return True
    names = {_stem(program), _stem(os.path.realpath(program))}
    if any(_PYTHON.fullmatch(name) for name in names):
        return _python_runs_it(rest, cwd)
    if names.isdisjoint(LAUNCHERS):
        return False
    if any(_WORD.search(word) for word in rest):
        return True
    if any(_is_own(os.path.join(cwd, word)) for word in rest if os.sep in word):
        return True
    return any(
        _PYTHON.fullmatch(_stem(word)) is not None and _python_runs_it(rest[place + 1 :], cwd)
        for place, word in enumerate(rest)
    )


def _python_runs_it(rest: Sequence[str], cwd: str) -> bool:
    """Whether Python with these arguments runs Interlock's module, code of it, or its script."""
    waiting = list(reversed(rest))
    while waiting:
        word = waiting.pop()
        if not word.startswith("-"):
            return _is_own(os.path.join(cwd, word))
        letters = "" if word.startswith("--") else word[1:]
        for at, letter in enumerate(letters):
            value = letters[at + 1 :]
            if letter in "mc":
                if not value and waiting:
                    value = waiting.pop()
                if _WORD.search(value):
                    return True
                return letter == "m" and _module_runs_it(value, waiting[::-1], cwd)
            if letter in "WX":
                if not value and waiting:
                    waiting.pop()
                break
    return False


def _module_runs_it(module: str, rest: Sequence[str], cwd: str) -> bool:
    """Whether a module with these arguments runs Interlock: many run other modules or code."""
    if any(_MODULE.fullmatch(word) for word in rest):
        return True
    if module.partition(".")[0] not in RUNNERS:
        return False
    return any(_WORD.search(word) or _is_own(os.path.join(cwd, word)) for word in rest)


def _is_own(path: str) -> bool:
    """Whether a file is Interlock's script, under whatever name."""
    real = os.path.realpath(path)
    if OWN in (_stem(path), _stem(real)):
        return True
    try:
        with open(real, "rb", opener=regular) as file:
            head = file.read(HEAD)
    except (OSError, ValueError):
        return False
    return head.startswith(b"#!") and _IMPORT.search(head) is not None


def _stem(path: str) -> str:
    name = PurePath(path).name.casefold()
    return name.removesuffix(".exe").removesuffix(".py")
