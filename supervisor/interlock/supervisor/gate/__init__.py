"""The per-turn gate: which sources a request is about. Pure, deterministic and explainable."""

from interlock.supervisor.gate.decide import decide, explain
from interlock.supervisor.gate.focus import FocusRow, choose
from interlock.supervisor.gate.index import GateIndex
from interlock.supervisor.gate.records import (
    By,
    Context,
    Decision,
    Evidence,
    SourceDecision,
    SourceText,
    Tables,
)

__all__ = [
    "By",
    "Context",
    "Decision",
    "Evidence",
    "FocusRow",
    "GateIndex",
    "SourceDecision",
    "SourceText",
    "Tables",
    "choose",
    "decide",
    "explain",
]
