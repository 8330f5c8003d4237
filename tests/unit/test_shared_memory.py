"""What forks share with their image: measured on forks, with and without what is tested."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator

import pytest

from interlock.supervisor.spawn.gather import gather_code
from interlock.supervisor.spawn.holes import fill_holes

FORKED = """
import gc, os, random, sys, types
from interlock.supervisor.spawn.gather import gather_code
from interlock.supervisor.spawn.holes import fill_holes

def private():
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))

def private_after(work):
    \"\"\"KiB that a fork has for itself after the work.\"\"\"
    gc.collect()
    gc.freeze()
    reader, writer = os.pipe()
    if os.fork() == 0:
        work()
        os.write(writer, b"%d" % private())
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    return int(os.read(reader, 99))
"""
HOLES = """
few = 5_000
there = [[bytes(size) for _ in range(20 * few)] for size in (31, 95)]
for blocks in there:
    del blocks[::20]  # a hole in each page at least
if sys.argv[1] == "prepared":
    assert fill_holes() >= 2 * few
print(private_after(lambda: [[bytes(size) for _ in range(few)] for size in (31, 95)]))
"""
CODE = """
many = 6000
body = "value = (one, one + one, one * one, -one, one - one, one % 3)\\n  " * 4
text = "".join(f"def f{number}(one):\\n  {body}return value\\n" for number in range(many))
codes = [one for one in compile(text, "many", "exec").co_consts if type(one) is types.CodeType]
module = sys.modules["few"] = types.ModuleType("few")
for code in codes[::20]:  # functions that lie together, whose code does not
    setattr(module, code.co_name, types.FunctionType(code, vars(module)))
called = [one for one in vars(module).values() if type(one) is types.FunctionType]

def work():
    for one in called:
        one(5)

assert len(called) == many / 20
if sys.argv[1] == "prepared":
    assert gather_code(work) >= len(called)
print(private_after(work))
"""
NAMES = """
def names(kind, many):  # of many lengths: their addresses choose their places in the cache
    return [kind + "x" * (number % 83) + str(number) for number in range(many)]

seen, later = names("a", 60_000), names("b", 6_000)
random.Random(5).shuffle(seen)
one = type("One", (), dict.fromkeys(seen + later))()
for name in seen[:6_000]:
    getattr(one, name)
if sys.argv[1] == "prepared":
    gather_code(lambda: None)
print(private_after(lambda: [getattr(one, name) for name in later]))
"""


@pytest.mark.parametrize("program", [HOLES, CODE, NAMES], ids=["holes", "code", "names"])
def test_a_fork_of_a_prepared_image_has_less_for_itself(program: str) -> None:
    needs = {}
    for how in ("plain", "prepared"):
        done = subprocess.run(
            [sys.executable, "-P", "-c", FORKED + program, how],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        needs[how] = int(done.stdout)
    assert needs["prepared"] < needs["plain"] / 2, needs


def test_holes_are_filled_once() -> None:
    fill_holes()
    assert fill_holes() < 10_000


def through(function: object) -> object:
    @functools.wraps(function)  # type: ignore[arg-type]
    def outer(*arguments: object) -> object:
        return function(*arguments)  # type: ignore[operator]

    return outer


def plain(number: int, *, add: int = 1) -> int:
    return number + add


def makes_one() -> object:
    return lambda: sys._getframe().f_code


def generates() -> Iterator[int]:
    yield from range(3)


@through
def wrapped() -> str:
    return "wrapped"


@functools.cache
def cached(number: int) -> int:
    return -number


def not_called() -> None:
    raise AssertionError


class Sample:
    def method(self) -> str:
        return __class__.__name__  # type: ignore[name-defined]

    @property
    def shown(self) -> int:
        return 7

    @staticmethod
    def free() -> int:
        return 8

    @classmethod
    def of_class(cls) -> type:
        return cls


def rehearse() -> list[object]:
    one = Sample()
    made = makes_one()()  # type: ignore[operator]
    said = [plain(1, add=2), *generates(), wrapped(), cached(len(said_before)), type(made)]
    said_before.append(said)
    return [*said, one.method(), one.shown, one.free(), one.of_class()]


said_before: list[object] = []


def test_functions_stay_what_they_are_when_their_code_moves() -> None:
    functions = {
        "plain": plain,
        "makes_one": makes_one,
        "generates": generates,
        "wrapped": wrapped.__wrapped__,  # type: ignore[attr-defined]
        "cached": cached.__wrapped__,
        "method": Sample.method,
        "shown": Sample.__dict__["shown"].fget,
        "free": Sample.free,
        "of_class": Sample.__dict__["of_class"].__func__,
    }
    before = {name: function.__code__ for name, function in functions.items()}
    there = not_called.__code__
    said = rehearse()
    made = makes_one()()  # type: ignore[operator]
    assert gather_code(rehearse) >= len(functions)
    for name, function in functions.items():
        assert function.__code__ is not before[name], name
        assert function.__code__ == before[name], name
    assert makes_one()() is not made  # type: ignore[operator]
    assert not_called.__code__ is there
    said_before.clear()
    assert rehearse() == said


def test_what_a_rehearsal_raises_comes_out_and_leaves_no_profiler() -> None:
    def broken() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        gather_code(broken)
    assert sys.getprofile() is None


def test_a_profiler_that_runs_is_left_alone() -> None:
    def profiler(*_: object) -> None:
        """Profile nothing."""

    sys.setprofile(profiler)
    try:
        assert gather_code(rehearse) == 0
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
