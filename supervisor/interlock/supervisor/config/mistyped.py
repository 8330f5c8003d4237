"""Finds names and patterns in the configuration that mean nothing: typing mistakes in rules; pure.

A rule that should keep something back and names nothing is worse than no rule, because somebody
relies on it. A pattern with wildcards may be meant for what comes later, so it is told of only if
something it nearly means is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from interlock.bus.errors import UsageError
from interlock.bus.names import QUIET_KINDS, WorkerName, capability_of, fold
from interlock.bus.nearest import LIKE, nearest_worker
from interlock.supervisor.config.lines import Path
from interlock.supervisor.config.merge import Merged
from interlock.supervisor.config.model import (
    CORE_WORKER,
    Problem,
    Settings,
    Written,
    worker_name,
)
from interlock.supervisor.policy.decision import CAREFUL, allows, forbids

CODE: Final = "matches_nothing"
"""Code of these warnings."""
NEAR: Final = 0.8
"""How like a served name has to be, from 0 to 1, that a rule for later is taken for a mistake."""
MAX_NAMES: Final = 2_000
"""Patterns and names that are looked at; more of them are taken to be right."""
MAX_COMPARED: Final = 50_000
"""Comparisons of patterns that are about no single source; after that many the rest is right."""
MAX_SHOWN: Final = 100
_WILD: Final = re.compile(r"[*?]")
_OWN: Final = re.compile(r"[/:]|__")

_KINDS: Final = frozenset({"mcp", "cli", "core", *QUIET_KINDS})
"""Kinds of capabilities; what else stands before a colon, models put there."""

Served = Mapping[str, Sequence[str] | None]
"""The local names that each source serves, disabled ones too; None where nobody knows yet."""


def written(settings: Settings, merged: Merged) -> tuple[Written, ...]:
    """Return all names and patterns that somebody wrote, with their places."""
    found: list[Written] = []

    def add(path: Path, texts: Iterable[str], *, forbids: bool, source: str = "") -> None:
        layer, line = merged.place(path)
        for text in texts if layer is not None and layer.file else ():
            found.append(
                Written(
                    text=text,
                    source=source,
                    forbids=forbids,
                    key=".".join(path),
                    file=layer.file if layer is not None else "",
                    line=line,
                )
            )

    policy = settings.policy
    for key in ("block", "ask", "allow"):
        add(("policy", key), getattr(policy, key), forbids=key != "allow")
    for n, rule in enumerate(policy.rules, 1):
        add(
            ("policy", "rules", str(n), "capability"),
            (rule.capability,),
            forbids=rule.tier in CAREFUL,
        )
    for name, agent in settings.agents.items():
        for key in ("grant", "deny", "focus"):
            add(("agents", name, key), getattr(agent.settings, key), forbids=key == "deny")
    for name, server in settings.mcp_servers.items():
        path, source = ("mcp_servers", name), worker_name("mcp_servers", name)
        hidden = server.settings.disabled_tools
        add((*path, "disabled_tools"), hidden, forbids=True, source=source)
        for tool in server.settings.tools:
            add((*path, "tools", tool), (tool,), forbids=True, source=source)
    return tuple(dict.fromkeys(found[:MAX_NAMES]))


def mistyped(texts: Iterable[Written], served: Served, others: Iterable[str] = ()) -> list[Problem]:
    """Return a warning for each name or pattern that means nothing of what is known.

    `others` are workers that no settings stand for, such as entries with a mistake. What may mean
    something of a source of which nobody knows what it serves is left alone.
    """
    known = _Known(served, others)
    return [
        Problem(
            file=one.file,
            line=one.line,
            key=one.key,
            message=f"{_shown(one.text)} in {one.key} matches nothing {what}",
            severity="warning",
            code=CODE,
            fix=fix,
        )
        for one in texts
        for what, fix in known.judge(one)
    ]


class _Known:
    """What there is, ready to be compared with."""

    def __init__(self, served: Served, others: Iterable[str]) -> None:
        self._local = served
        self._names = {
            source: tuple(_full(source, local) for local in names or ())
            for source, names in served.items()
        }
        self._unknown = [source for source, names in served.items() if names is None]
        self._unknown += [other for other in others if not other.startswith("agent:")]
        self._folded: dict[str, list[str]] = {}
        for source in served:
            self._folded.setdefault(fold(source), []).append(source)
        self._room = MAX_COMPARED

    def judge(self, one: Written) -> Iterator[tuple[str, str]]:
        """Yield what it does not match and what to do, or nothing."""
        if one.source:
            own_names = self._local.get(one.source)
            if own_names is not None and one.text not in own_names:
                like = get_close_matches(one.text, own_names, 1, LIKE)
                yield f"that {one.source} serves", _fix(like[0] if like else "", one.source)
            return
        pattern = one.text.strip()
        if pattern == "*":
            return
        source, _, tool = pattern.partition("/")
        kind, _, own = source.partition(":")
        single = kind in _KINDS and bool(own) and not _WILD.search(source)
        meant = self._meant(kind, own, folded=one.forbids) if single else tuple(self._names)
        names = [name for worker in meant for name in self._names[worker]]
        if self._matches(one, names, free=single):
            return
        if any(_may_mean(pattern, each, folded=one.forbids) for each in self._unknown):
            return
        if single and not meant:
            near = nearest_worker(_worker(kind, own), self._names)
            yield "that is configured", _fix(near + ("/" + tool if tool and near else ""))
        elif single and not tool and not one.forbids and kind in ("mcp", *QUIET_KINDS):
            yield "by itself", _fix(f"{source}/*")
        else:
            exact = not _WILD.search(tool if single else pattern)
            near = self._near(pattern, meant, LIKE if exact and single else NEAR)
            if near or (exact and (single or not one.forbids)):
                where = f"that {meant[0]} serves" if single else "that is served"
                yield where, _fix(near, meant[0] if single else "")

    def _meant(self, kind: str, own: str, *, folded: bool) -> tuple[str, ...]:
        """Return the sources that a pattern with one literal source is about."""
        worker = _worker(kind, own)
        if not folded:
            return (worker,) if worker in self._names else ()
        return tuple(self._folded.get(fold(worker), ()))

    def _matches(self, one: Written, names: Sequence[str], *, free: bool) -> bool:
        """Whether it means one of the names, or there are too many to find out."""
        self._room -= len(self._unknown) // 8 + (0 if free else len(names))
        if self._room < 0:
            return True
        # Not by way of the memory of answers, which is for those that calls need.
        about = (forbids if one.forbids else allows).__wrapped__
        return any(about(one.text, name) for name in names)

    def _near(self, pattern: str, sources: Iterable[str], like: float) -> str:
        """Return the served name that somebody may have meant; "" if none is near."""
        names = [name for source in sources for name in self._names[source]]
        by_own = {fold(_OWN.split(name)[-1]): name for name in reversed(names)}
        own = fold(_WILD.sub("", _OWN.split(pattern)[-1]))
        near = get_close_matches(own, by_own, 1, like) if len(own) > 2 else []
        return by_own[near[0]] if near else ""


def _full(source: str, local: str) -> str:
    try:
        return str(capability_of(WorkerName.parse(source), local))
    except UsageError:
        return source


def _worker(kind: str, own: str) -> str:
    """The worker that serves capabilities of that kind and source."""
    return CORE_WORKER if kind == "core" else f"{'mcp' if kind in QUIET_KINDS else kind}:{own}"


def _may_mean(pattern: str, source: str, *, folded: bool) -> bool:
    """Tell whether a pattern may mean something of a source, whatever that serves."""
    kind, _, own = source.partition(":")
    wild = _WILD.search(pattern)
    head = pattern[: wild.start()] if wild else pattern
    if ":" not in pattern:
        return folded or (bool(wild) and _meet(head, source)) or "__" in pattern
    kinds = (kind, *QUIET_KINDS) if kind == "mcp" else (kind,)
    for each in kinds:
        start = "core:" if kind == "core" else f"{each}:{own}/"
        if _meet(head, start) if wild else f"{pattern}/".startswith(start):
            return True
        if folded and _meet(fold(head), fold(start)):
            return True
    return False


def _meet(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _fix(near: str, source: str = "") -> str:
    if near:
        return f"Did you mean {near}?"
    return f"See `interlock tools{' ' + source if source else ''}`, and mend it or take it away."


def _shown(text: str) -> str:
    return repr(text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…")
