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
    "missed_big",
    "missed_words",
)
"""What speaks for one source by itself, in the order of `score.features`.

Of "most" and "near" the square counts: only a telling word and a real nearness say much.
"missed" is the heaviest word that the source does not have, "missed_big" the same of words with a
capital, "missed_words" the logarithm of how many it does not have.
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
    alone=(
        *(-2.03, 3.62, 2.96, -1.05, 2.5, 0.74, 2.11, -0.84),
        *(4.75, -0.97, 0.89, 2.2, 1.82, -0.28, -0.4),
    ),
    best=(-0.45, 0.86, 0.2),
    others=(-0.59, 1.04, 0.04, 1.28),
    threshold=0.102,
)
