"""Names of capabilities and workers: the only place that builds, parses, folds or resolves them.

Inside, a capability is `kind:source/name` (`mcp:git/git_status`) or `kind:source` (`cli:gh`), and
a worker is `kind:id`. Letters, digits, `_`, `-`, `.` and most of Unicode stand for themselves;
everything else, `/` and `:` first, is percent-escaped as UTF-8, so every string that a real server
uses as a name has exactly one written form.

Models and MCP clients see wire names, `[a-zA-Z0-9_-]{1,64}`. A name that fits is written
`kind__source__name`; any other gets a readable beginning, `___` and 16 hex digits of the SHA-256 of
its written form. No plain wire name contains `___`, so the two forms never meet, and neither
depends on which other names exist.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from interlock.bus.errors import UsageError

MAX_WIRE: Final = 64
"""Characters of a wire name; what model providers accept."""
LONGEST_SPELLING: Final = 1_000
"""Characters of a text that can mean a name: to compare longer ones takes quadratic time."""
MAX_CANDIDATES: Final = 5
"""Names that a failed resolution offers at most."""
LONGEST: Final = 1_000
"""Characters of a text that is looked at as a spelling."""

QUIET_KINDS: Final = ("prompt", "resource")
"""Kinds that mcp workers serve besides tools."""
LOCAL_MARK: Final = "\x1f"

_HASH = 16
_KIND = re.compile(r"[a-z]{1,16}")
_PLAIN_PART = re.compile(r"[a-zA-Z0-9-]+(?:_[a-zA-Z0-9-]+)*")
_NOT_WIRE = re.compile(r"[^a-zA-Z0-9-]+")
_STRAY_PERCENT = re.compile(r"%(?![0-9a-fA-F]{2})")
_LEAF = re.compile(r"__|[/:.]")
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Zs", "Zl", "Zp"})
_NO_ALNUM = dict.fromkeys(code for code in range(128) if not chr(code).isalnum())
_GENERIC_PREFIXES = frozenset({"default", "defaultapi", "functions", "function", "tools", "tool"})
"""Prefixes that models put before a tool's name without meaning a source; folded."""


class WorkerName(msgspec.Struct, frozen=True, order=True):
    """Name of a worker, written `kind:id`.

    >>> str(WorkerName("mcp", "my server"))
    'mcp:my%20server'
    """

    kind: str
    id: str

    def __post_init__(self) -> None:
        """Refuse parts that no written form can have. Raises UsageError."""
        _check(self.kind, self.id)

    def __str__(self) -> str:
        """Return the written form."""
        return f"{self.kind}:{_escape(self.id)}"

    @classmethod
    def parse(cls, text: str) -> WorkerName:
        """Read the written form. Raises UsageError for anything else."""
        kind, source, name = _split(text)
        if name:
            raise UsageError(f"{text!r} names a capability; a worker is written like mcp:git.")
        return cls(kind, source)


def workers_meant(typed: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the workers of `known` that a person means by `typed`: one where it is written out.

    Else those whose id it is, or would be if special characters needed no escapes.

    >>> workers_meant("my server", ["mcp:my%20server", "agent:main"])
    ('mcp:my%20server',)
    >>> workers_meant("main", ["mcp:main", "agent:main"])
    ('mcp:main', 'agent:main')
    """
    names = tuple(known)
    if typed in names:
        return (typed,)
    return tuple(name for name in names if typed in _spellings(name))


def _spellings(worker: str) -> tuple[str, ...]:
    """Return what else people write for a worker's name."""
    try:
        name = WorkerName.parse(worker)
    except UsageError:
        return ()
    return (name.id, worker.partition(":")[2], f"{name.kind}:{name.id}")


class CapabilityName(msgspec.Struct, frozen=True, order=True):
    """Name of a capability, written `kind:source/name`, or `kind:source` where `name` is empty.

    >>> CapabilityName.parse("mcp:files/read%2Fall")
    CapabilityName(kind='mcp', source='files', name='read/all')
    """

    kind: str
    source: str
    name: str = ""

    def __post_init__(self) -> None:
        """Refuse parts that no written form can have. Raises UsageError."""
        _check(self.kind, self.source, self.name)

    def __str__(self) -> str:
        """Return the written form."""
        if not self.name:
            return f"{self.kind}:{_escape(self.source)}"
        return f"{self.kind}:{_escape(self.source)}/{_escape(self.name)}"

    @property
    def worker(self) -> WorkerName:
        """Where the capability comes from: `source` in the catalog, a worker's name in status."""
        return WorkerName(self.kind, self.source)

    @classmethod
    def parse(cls, text: str) -> CapabilityName:
        """Read the written form. Raises UsageError for anything else."""
        return cls(*_split(text))


def local_name(kind: str, name: str) -> str:
    """Return the name by which an mcp worker knows a resource or prompt of its server.

    It cannot be the name of a tool, which holds no control character.

    >>> local_name("prompt", "simple")
    'prompt\\x1fsimple'
    """
    return f"{kind}{LOCAL_MARK}{name}"


def capability_of(worker: WorkerName, local: str) -> CapabilityName:
    """Return the capability that a worker serves under a local name. Raises UsageError.

    >>> git = WorkerName("mcp", "git")
    >>> str(capability_of(git, "log")), str(capability_of(git, local_name("prompt", "review")))
    ('mcp:git/log', 'prompt:git/review')
    >>> str(capability_of(WorkerName("cli", "gh"), "gh"))
    'cli:gh'
    >>> str(capability_of(WorkerName("core", "basics"), "time"))
    'core:time'
    """
    if worker.kind == "core":
        return CapabilityName("core", local)
    if worker.kind == "cli" and local == worker.id:
        return CapabilityName("cli", local)
    kind, mark, name = local.partition(LOCAL_MARK)
    if worker.kind == "mcp" and mark and kind in QUIET_KINDS:
        return CapabilityName(kind, worker.id, name)
    return CapabilityName(worker.kind, worker.id, local)


def wire_name(name: CapabilityName) -> str:
    """Return the name that models and MCP clients see; the same for ever.

    >>> wire_name(CapabilityName("mcp", "github", "create_pull_request"))
    'mcp__github__create_pull_request'
    >>> wire_name(CapabilityName("mcp", "a.b", "x"))
    'mcp__a_b__x___c734f56bb72dc5d4'
    """
    parts = [name.kind, name.source, name.name] if name.name else [name.kind, name.source]
    plain = "__".join(parts)
    if len(plain) <= MAX_WIRE and all(_PLAIN_PART.fullmatch(part) for part in parts):
        return plain
    readable = [_NOT_WIRE.sub("_", part).strip("_") or "x" for part in parts]
    room = MAX_WIRE - _HASH - len("___")
    prefix = "__".join(readable)[:room].rstrip("_")
    digest = sha256(str(name).encode()).hexdigest()[:_HASH]
    return f"{prefix}___{digest}"


class WireNames:
    """The way back from wire names, for a set of capabilities."""

    def __init__(self, names: Iterable[CapabilityName] = ()) -> None:
        self._by_wire: dict[str, CapabilityName] = {}
        for name in names:
            self.add(name)

    def add(self, name: CapabilityName) -> str:
        """Remember a name and return its wire name.

        Raises UsageError where another name already has it: two of 64-bit hashes met.
        """
        wire = wire_name(name)
        known = self._by_wire.setdefault(wire, name)
        if known != name:
            raise UsageError(f"{name} and {known} have the same wire name {wire}; rename one.")
        return wire

    def discard(self, name: CapabilityName) -> None:
        """Forget a name; nothing happens if it is not known."""
        self._by_wire.pop(wire_name(name), None)

    def find(self, wire: str) -> CapabilityName | None:
        """Return the capability with that wire name."""
        return self._by_wire.get(wire)

    def __len__(self) -> int:
        """Return how many names are known."""
        return len(self._by_wire)

    def __iter__(self) -> Iterator[CapabilityName]:
        """Go through the names in the order in which they came."""
        return iter(self._by_wire.values())


def fold(text: str) -> str:
    """Reduce a spelling to its letters and digits in one case, so that variants meet.

    A text without any letter or digit folds to itself.

    >>> {fold(text) for text in ("run-shell", "run_shell", "RunShell", "run.shell")}
    {'runshell'}
    """
    if text.isascii():  # what nearly all are; the same, an order faster
        plain = text.lower()
        return plain.translate(_NO_ALNUM) or plain
    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(char for char in plain if char.isalnum()) or plain


def matches(pattern: str, name: CapabilityName) -> bool:
    """Tell whether a pattern such as `mcp:git/*` names the capability exactly; for grants."""
    return fnmatchcase(str(name), with_brackets(pattern)) or pattern == wire_name(name)


def with_brackets(pattern: str) -> str:
    """A pattern for `fnmatch` in which `[` is a character: only `*` and `?` stand for others.

    >>> fnmatchcase("file[1].txt", with_brackets("file[1].*"))
    True
    """
    return pattern.replace("[", "[[]")


def matches_folded(pattern: str, name: CapabilityName) -> bool:
    """Tell whether a pattern names the capability in any spelling; for rules that forbid.

    A bare word forbids a capability of that name wherever it comes from, also where the source
    itself puts something before it (`default:spawn_worker`, `team/spawn-worker`).

    >>> matches_folded("mcp:*/delete_*", CapabilityName("mcp", "Git", "DeleteBranch"))
    True
    >>> matches_folded("mcp:git", CapabilityName("mcp", "git", "git_log"))
    True
    >>> matches_folded("spawn-worker", CapabilityName("mcp", "x", "team.SpawnWorker"))
    True
    """
    if matches(pattern, name):
        return True
    before, _, rest = pattern.partition(":")
    text = rest if rest and fold(before) in _GENERIC_PREFIXES else pattern
    kind, colon, rest = text.partition(":")
    if not colon:
        # A bare word forbids a capability of that name wherever it comes from.
        kind, rest = "*", text
        if _bare(text, name):
            return True
    source, slash, tool = rest.partition("/")
    if not (colon or slash) or not fnmatchcase(name.kind, with_brackets(kind.strip().casefold())):
        return False
    if not fnmatchcase(fold(name.source), _fold_pattern(source)):
        return False
    return not slash or _any_like(_fold_pattern(tool), folded_leaves(name))


def folded_leaves(name: CapabilityName) -> tuple[str, ...]:
    """Return the capability's own name folded, whole and without what stands before it.

    >>> folded_leaves(CapabilityName("mcp", "x", "default:spawn_worker"))
    ('defaultspawnworker', 'spawnworker')
    """
    own = name.name or name.source
    return tuple(dict.fromkeys((fold(own), fold(_LEAF.split(own.rstrip("/:._"))[-1]))))


def _bare(text: str, name: CapabilityName) -> bool:
    """Tell whether a pattern without a kind means the capability."""
    leaves = folded_leaves(name)
    parts = _LEAF.split(text)
    if _any_like(_fold_pattern(text), leaves):
        return True
    if len(parts) > 1 and fold(parts[0]) in _GENERIC_PREFIXES:
        return _any_like(_fold_pattern(parts[-1]), leaves)
    if len(parts) == 1 and ("*" in text or "?" in text):
        return False  # `read*` is about tools, not about everything of a source `reader`.
    source = fold(name.source)
    with_source = [source + leaf for leaf in leaves]
    return _any_like(_fold_pattern(text), (*with_source, *(name.kind + one for one in with_source)))


def _any_like(pattern: str, texts: Iterable[str]) -> bool:
    return any(fnmatchcase(text, pattern) for text in texts)


def resolve_spelling(
    text: str, names: Iterable[CapabilityName]
) -> CapabilityName | tuple[CapabilityName, ...]:
    """Return the one name that `text` can mean, or else the candidates, best first.

    A text that names a source never resolves to a capability of another source. One of more than
    `LONGEST` characters that is no exact name has no candidates.
    """
    known = tuple(dict.fromkeys(names))
    exact = [name for name in known if text in (str(name), wire_name(name))]
    if len(exact) == 1:
        return exact[0]
    if len(text) > LONGEST_SPELLING:
        return ()
    if len(text) > LONGEST:
        return ()
    found = spelled(text, known)
    if len(found) == 1:
        return found[0]
    return found[:MAX_CANDIDATES] if found else _near(text, known)


def spelled(text: str, names: Iterable[CapabilityName]) -> tuple[CapabilityName, ...]:
    """Return all names that `text` is a spelling of, in their order; none that is only near.

    >>> known = CapabilityName("mcp", "x", "run_shell"), CapabilityName("mcp", "y", "run_shell")
    >>> [str(name) for name in spelled("RunShell", known)]
    ['mcp:x/run_shell', 'mcp:y/run_shell']
    """
    if len(text) > LONGEST_SPELLING:
        return ()
    known = tuple(names)
    whole, sources = fold(text), {fold(each.source) for each in known}
    return tuple(
        name
        for name in known
        if whole.endswith(fold(name.name or name.source)) and _means(text, name, sources)
    )


def _means(text: str, name: CapabilityName, sources: Container[str]) -> bool:
    """Tell whether a spelling can mean that name; `sources` are those of all names, folded."""
    own = fold(name.name or name.source)
    prefix, tool = _prefix(text.strip())
    if prefix is not None and fold(prefix) in _GENERIC_PREFIXES and fold(prefix) not in sources:
        prefix = None
    if prefix is None:
        whole = fold(tool)
        return whole in (own, fold(name.source + name.name), fold(name.kind + name.source + own))
    if fold(tool) != own:
        return False
    kind, colon, source = prefix.partition(":")
    if colon:
        return kind.casefold() == name.kind and fold(source) == fold(name.source)
    if not name.name:
        return fold(prefix) == fold(name.kind)
    return fold(prefix) in (fold(name.source), fold(name.kind + name.source))


def _prefix(text: str) -> tuple[str | None, str]:
    """Split a spelling into what stands before the tool's name, if anything, and that name."""
    for separator in ("/", "__", ":", "."):
        prefix, found, tool = text.rpartition(separator)
        if found and prefix.strip("_") and tool.strip("_"):
            return prefix.replace("__", ":", 1) if separator == "__" else prefix, tool
    return None, text


def _near(text: str, known: tuple[CapabilityName, ...]) -> tuple[CapabilityName, ...]:
    """Return the names that look most like a text that means none."""
    by_key: dict[str, CapabilityName] = {}
    for name in known:
        by_key.setdefault(fold(str(name)), name)
        by_key.setdefault(fold(name.name or name.source), name)
    _, tool = _prefix(text)
    close = [
        *get_close_matches(fold(text), by_key, MAX_CANDIDATES, 0.75),
        *get_close_matches(fold(tool), by_key, MAX_CANDIDATES, 0.75),
    ]
    return tuple(dict.fromkeys(by_key[key] for key in close))[:MAX_CANDIDATES]


def _fold_pattern(pattern: str) -> str:
    """Fold what stands between the wildcards of a pattern."""
    parts = re.split(r"([*?])", unquote_to_bytes(pattern).decode(errors="replace"))
    return "".join(
        part if part in ("*", "?") else with_brackets(fold(part)) for part in parts if part
    )


def _check(kind: str, source: str, name: str = "") -> None:
    """Raise UsageError for parts that no written form can have."""
    if not _KIND.fullmatch(kind):
        raise UsageError(f"{kind!r} is no kind: 1 to 16 small letters, such as mcp.")
    if not source:
        raise UsageError(f"The name of a source is empty; write {kind}:NAME.")
    try:
        (source + name).encode()
    except UnicodeEncodeError:
        raise UsageError(f"{source + name!r} is not valid Unicode.") from None


def _escape(part: str) -> str:
    """Percent-escape every character that could be read as something else."""
    if part.isascii() and part.replace("_", "").replace("-", "").replace(".", "").isalnum():
        return part
    return "".join(char if _stands(char) else _percent(char) for char in part)


def _stands(char: str) -> bool:
    """Tell whether a character stands for itself in a written name."""
    if char.isascii():
        return char.isalnum() or char in "_-."
    return unicodedata.category(char) not in _UNSAFE_CATEGORIES


def _percent(char: str) -> str:
    """Return the UTF-8 bytes of a character as %XX."""
    return "".join(f"%{byte:02X}" for byte in char.encode())


def _split(text: str) -> tuple[str, str, str]:
    """Split a written name into its unescaped parts. Raises UsageError."""
    kind, colon, rest = text.partition(":")
    source, slash, name = rest.partition("/")
    if not colon or ":" in rest or "/" in name or (slash and not name):
        raise UsageError(f"{text!r} is no name; write kind:source/name, such as mcp:git/git_log.")
    return kind, _unescape(source), _unescape(name)


def _unescape(part: str) -> str:
    """Undo `_escape`. Raises UsageError for a stray or undecodable escape."""
    if "%" not in part:
        return part
    if _STRAY_PERCENT.search(part):
        raise UsageError(f"{part!r} has a % that begins no escape; write it as %25.")
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise UsageError(f"{part!r} has an escape that is not UTF-8.") from None
