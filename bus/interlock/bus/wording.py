"""Plain words for things that many messages to people name. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def spoken(seconds: float) -> str:
    """Return a time as somebody would have set it: what was lost on the way is rounded away.

    >>> spoken(0.998), spoken(0.2981), spoken(12.497), spoken(599.98), spoken(1800)
    ('1', '0.3', '12.5', '600', '1800')
    """
    return f"{round(seconds, 1):.10g}" if seconds >= 1 else f"{float(f'{seconds:.2g}'):g}"


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
