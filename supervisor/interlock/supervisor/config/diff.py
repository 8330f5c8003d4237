"""What a change of settings means for each worker; pure."""

from __future__ import annotations

from typing import Final

import msgspec

from interlock.supervisor.config.model import CliEntry, Entry, ServerEntry, Settings

RESTART_KEYS: Final = (
    "command",
    "args",
    "env",
    "cwd",
    "type",
    "url",
    "headers",
    "api_key_env",
    "placement",
)
"""Server keys that define the connection itself; all others are applied to the running worker."""
CLI_RESTART_KEYS: Final = ("command", "args", "env", "cwd")
"""Keys of a command-line tool that its worker reads once."""
SPAWN_LIMITS: Final = ("open_files", "cpu_seconds", "address_space", "nice")
"""Limits that the kernel takes when a process starts; memory is watched and applies at once."""


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """Workers by what a change means for them; every worker of old and new is in exactly one.

    `disabled` and `enabled` are entries that stay while their `enabled` flips. `supervisor` and
    `policy` tell whether those sections changed.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    apply: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    supervisor: bool = False
    policy: bool = False

    @property
    def empty(self) -> bool:
        """True if nothing has to be done."""
        moved = (self.added, self.removed, self.enabled, self.disabled, self.restart, self.apply)
        return not any(moved) and not self.supervisor and not self.policy


def diff(old: Settings, new: Settings) -> Diff:
    """Sort all workers of both by what has to happen to them; `added` includes disabled entries."""
    before, after = old.workers(), new.workers()
    sorted_out: dict[str, list[str]] = {}
    for name, entry in after.items():
        kind = _change(before[name], entry) if name in before else "added"
        sorted_out.setdefault(kind, []).append(name)
    return Diff(
        removed=tuple(name for name in before if name not in after),
        supervisor=old.supervisor != new.supervisor,
        policy=old.policy != new.policy,
        **{kind: tuple(names) for kind, names in sorted_out.items()},
    )


def _change(old: Entry, new: Entry) -> str:
    """Return the field of Diff that one worker belongs to."""
    if old.settings.enabled != new.settings.enabled:
        return "enabled" if new.settings.enabled else "disabled"
    if not new.settings.enabled:
        return "unchanged" if old.settings == new.settings else "apply"
    if any(
        getattr(old.settings.limits, key) != getattr(new.settings.limits, key)
        for key in SPAWN_LIMITS
    ):
        return "restart"
    keys = RESTART_KEYS if isinstance(new, ServerEntry) else CLI_RESTART_KEYS
    if isinstance(old, (ServerEntry, CliEntry)) and isinstance(new, (ServerEntry, CliEntry)):
        if old.folder != new.folder:
            return "restart"
        if any(getattr(old.settings, key) != getattr(new.settings, key) for key in keys):
            return "restart"
    return "unchanged" if old.settings == new.settings else "apply"
