"""Plain words for things that many messages to people name. Pure."""

from __future__ import annotations


def spoken(seconds: float) -> str:
    """Return a time as somebody would have set it: what was lost on the way is rounded away.

    >>> spoken(0.998), spoken(0.2981), spoken(12.497), spoken(599.98), spoken(1800)
    ('1', '0.3', '12.5', '600', '1800')
    """
    return f"{round(seconds, 1):.10g}" if seconds >= 1 else f"{float(f'{seconds:.2g}'):g}"
