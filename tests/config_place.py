"""The files that configuration is read from, in a temporary folder."""

from __future__ import annotations

from pathlib import Path

from interlock.supervisor.config import Loaded, load
from interlock.supervisor.config.reading import TRUST_FILE
from interlock.supervisor.config.trust import digest, read_trust, trust_key, write_trust
from interlock.supervisor.policy.decision import standing


class Place:
    """A home, a user's configuration and a workspace in a temporary folder."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.workspace = root / "work"
        self.workspace.mkdir()
        self.environ = {"HOME": str(root), "XDG_CONFIG_HOME": str(root / "config")}
        self.user = root / "config" / "interlock" / "interlock.toml"
        self.user.parent.mkdir(parents=True)
        self.own = self.workspace / "interlock.toml"
        self.local = self.workspace / "interlock.local.toml"
        self.shared = self.workspace / ".mcp.json"

    def load(self, explicit: Path | None = None, previous: Loaded | None = None) -> Loaded:
        return load(self.home, self.workspace, explicit, self.environ, previous)

    def trust(self, *files: Path) -> None:
        trusted = read_trust(self.home / TRUST_FILE)
        trusted |= {trust_key(file): digest(file.read_bytes()) for file in files}
        write_trust(self.home / TRUST_FILE, trusted)

    def revoke(self) -> None:
        """Take all trust back, as a person does."""
        write_trust(self.home / TRUST_FILE, {})


def tier(loaded: Loaded, name: str = "mcp:x/echo") -> str:
    """What policy says about a capability that would simply run."""
    return standing(name, "safe", loaded.settings.policy).tier
