"""The gate's numbers, fitted by `python -m tests.bench.gate_fit`; nothing else is tuned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FEATURES: Final = (
    "bias",
    "most",
    "covered",
    "tool_name",
    "tool_share",
    "server_name",
    "pair",
    "size",
    "card",
    "installed",
    "spread",
    "near",
    "missed",
)
"""What speaks for one source by itself, in the order of `score.features`.

Of "most" and "near" the square counts: only a telling word and a real nearness say much.
"""
FARTHEST: Final = 4.0
"""A larger distance between two sources counts as this."""
RELATED: Final = 0.5
"""How much a related word counts beside the word itself."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Weights of logistic functions, and what a source needs to be offered.

    `alone` goes with FEATURES. `best` is for the best source of a request: 1, what it has alone,
    how far the next is behind. `others` is for the rest: 1, what they have alone, how far behind
    they are, which share of their words the best does not have.
    """

    alone: tuple[float, ...]
    best: tuple[float, ...]
    others: tuple[float, ...]
    threshold: float


SHIPPED: Final = Numbers(
    alone=(-2.69, 3.11, 4.32, -0.96, 2.24, 1.02, 1.76, -0.85, 4.48, -0.91, 0.96, 2.08, 1.91),
    best=(-0.31, 0.85, 0.24),
    others=(-0.35, 0.97, -0.16, 1.13),
    threshold=0.175,
)
