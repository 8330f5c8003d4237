"""Lays the code that an image's forks will run side by side in its memory.

Running code writes to it: into its count of references and its specialised instructions. A page
that is written to is shared with the image no longer, and where the few functions that a fork
calls lie among the many that it does not call, each costs it a page or two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType, FunctionType

from interlock.supervisor.spawn.holes import fill_holes


def gather_code(rehearsal: Callable[[], object]) -> int:
    """Call `rehearsal` twice, and move the code of the functions that it calls together.

    Returns how many were moved. Only functions that their module or class has under their own name
    are; they stay the same objects and do the same. Where a profiler runs nothing is moved. Raises
    what `rehearsal` raises.
    """
    if sys.getprofile() is not None:
        return 0
    functions = {
        id(function): function
        for module, name in _called(rehearsal)
        for function in _functions(module, name)
    }
    fill_holes()  # The copies shall not lie in the gaps between what stays.
    for function in functions.values():
        function.__code__ = _copy(function.__code__)
    # Python remembers which attributes of types were looked up, and to forget one is a write, too:
    # into its name. So nothing is to be remembered but what the forks will look up.
    sys._clear_type_cache()
    rehearsal()
    return len(functions)


def _called(rehearsal: Callable[[], object]) -> set[tuple[str, str]]:
    """Return module and name of the functions that are called, those outside of functions."""
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        module = frame.f_globals.get("__name__")
        if event == "call" and isinstance(module, str):
            called.add((module, frame.f_code.co_qualname.partition(".<locals>")[0]))

    sys.setprofile(note)
    try:
        rehearsal()
    finally:
        sys.setprofile(None)
    return called


def _functions(module: str, name: str) -> Iterator[FunctionType]:
    """Yield what stands under a name in a module: a function, or those of a property."""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        # Not `getattr`: that would run code of the class or find what it inherits.
        found = _namespace(found).get(part)
    inner: tuple[object, ...] = (found,)
    if isinstance(found, property):
        inner = (found.fget, found.fset)
    elif isinstance(found, (staticmethod, classmethod)):
        inner = (found.__func__,)
    for one in inner:
        while one is not None:
            if isinstance(one, FunctionType) and one.__code__.co_qualname == name:
                yield one
            one = _namespace(one).get("__wrapped__")


def _namespace(thing: object) -> Mapping[str, object]:
    found: Mapping[str, object] = getattr(thing, "__dict__", {})
    return found


def _copy(code: CodeType) -> CodeType:
    """Return the same code in new memory, with copies of the functions that it defines."""
    constants = (_copy(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_consts=tuple(constants))
