"""References, masks, logs: what workers do with secrets and with their log."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import keyring.backend
import keyring.errors
import pytest

from interlock.bus import references as bus_references
from interlock.bus.searchpath import search_path
from interlock.workers.failure import WorkerError
from interlock.workers.logs import WorkerLog
from interlock.workers.programs import find_command
from interlock.workers.secrets import Masks, hide_literals, resolve, resolve_entries

ENVIRON = {"TOKEN": "tok-123456", "EMPTY": "", "HOME": "/home/me-myself"}


def look_up(value: str, masks: Masks | None = None) -> str:
    return asyncio.run(resolve(value, ENVIRON, masks or Masks(), "mcp_servers.x.env.A"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", "plain"),
        ("${TOKEN}", "tok-123456"),
        ("Bearer ${TOKEN}!", "Bearer tok-123456!"),
        ("${NONE:-fallback}", "fallback"),
        ("${EMPTY:-fallback}", "fallback"),
        ("${NONE:-}", ""),
        ("${EMPTY}", ""),
        ("$$ and $TOKEN", "$ and $TOKEN"),
        ("$${TOKEN}", "${TOKEN}"),
    ],
)
def test_references(value: str, expected: str) -> None:
    assert look_up(value) == expected


def test_an_unresolved_reference_is_named_and_final() -> None:
    with pytest.raises(WorkerError) as caught:
        look_up("${ABSENT}")
    assert (caught.value.code, caught.value.permanent) == ("secret_unresolved", True)
    assert "${ABSENT} in mcp_servers.x.env.A" in caught.value.reason


def test_a_reference_without_a_name_is_told_so() -> None:
    with pytest.raises(WorkerError) as caught:
        look_up("${}")
    assert "names no variable" in caught.value.reason
    assert "Write the name of a variable" in caught.value.fix


@pytest.mark.parametrize(
    ("reference", "why", "fix"),
    [
        ("env:HOME", "editors write the variable HOME so", "Write ${HOME} in its place."),
        ("input:token", "editors ask a person for it", "`${keyring:NAME}`"),
        ("workspaceFolder", "only an editor knows it", "Write `.` in its place"),
        ("userHome", "only an editor knows it", "Write ${HOME} in its place."),
        ("command:x.y", "no variable is named so", "`${NAME}`"),
        ("TOKEN:?unset", "no variable is named so", "`${NAME:-default}`"),
        (
            "ABSENT",
            "that variable is not set",
            "Set ABSENT before `interlock up` (one that runs: `interlock down` first).",
        ),
    ],
)
def test_what_other_programs_write_is_told_as_that(reference: str, why: str, fix: str) -> None:
    with pytest.raises(WorkerError) as caught:
        look_up(f"x ${{{reference}}}")
    assert why in caught.value.reason and not caught.value.reason.endswith(".")
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("backend", "why"),
    [
        ("keyring.backends.fail.Keyring", "there is no system keyring here"),
        ("keyring.backends.null.Keyring", "the keyring is switched off (keyring.backends.null"),
        ("keyrings.alt.file.PlaintextKeyring", "keyrings.alt.file.PlaintextKeyring is not read"),
    ],
)
def test_a_keyring_that_is_not_read_is_named_with_the_reason(backend: str, why: str) -> None:
    fault = bus_references.keyring_fault(backend)
    assert fault is not None and fault[0].startswith(why) and "${NAME}" in fault[1]
    assert bus_references.keyring_fault("keyring.backends.SecretService.Keyring") is None


def test_a_command_that_a_variable_leaves_empty_is_told_so() -> None:
    for command in ("", " "):
        with pytest.raises(WorkerError, match="`command` is empty") as caught:
            find_command(command, "/", ["/usr/bin"])
        assert caught.value.permanent and "variable" in caught.value.fix


class Vault(keyring.backend.KeyringBackend):
    priority = 0.1  # type: ignore[assignment]
    values = {  # noqa: RUF012 - shared on purpose
        "gh": "from-the-keyring",
        "long": "chunks:3",
        "long#0": "aaaa",
        "long#1": "bbbb",
        "long#2": "cccc",
        "broken": "chunks:2",
        "broken#0": "aaaa",
    }

    def get_password(self, service: str, username: str) -> str | None:
        assert service == "interlock"
        if username == "locked":
            raise keyring.errors.KeyringLocked("secret-detail")
        return self.values.get(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError

    def delete_password(self, service: str, username: str) -> None:
        raise NotImplementedError


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = keyring.get_keyring()
    keyring.set_keyring(Vault())
    monkeypatch.setattr(bus_references, "ALLOWED_BACKENDS", (Vault.__module__,))
    yield
    keyring.set_keyring(before)


@pytest.mark.usefixtures("vault")
def test_keyring_values_and_their_parts() -> None:
    masks = Masks()
    assert look_up("${keyring:gh}", masks) == "from-the-keyring"
    assert look_up("${keyring:long}", masks) == "aaaabbbbcccc"
    assert masks.mask("x from-the-keyring y aaaabbbbcccc") == "x [secret] y [secret]"


@pytest.mark.usefixtures("vault")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none", "no entry of service interlock and user name none"),
        ("broken", "a part"),
        ("locked", "KeyringLocked"),
    ],
)
def test_keyring_troubles_are_named_without_details(name: str, why: str) -> None:
    with pytest.raises(WorkerError) as caught:
        look_up(f"${{keyring:{name}}}")
    assert why in caught.value.reason and "secret-detail" not in caught.value.reason


@pytest.mark.usefixtures("vault")
def test_a_keyring_that_may_ask_on_a_terminal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_references, "ALLOWED_BACKENDS", ("keyring.backends.",))
    with pytest.raises(WorkerError, match="is not read: it may ask"):
        look_up("${keyring:gh}")


def test_entries_hide_what_is_secret_only() -> None:
    masks = Masks()
    entries = {
        "TOKEN": "",
        "PLACE": "${HOME}/data",
        "MODE": "verbose-mode",
        "API_KEY": "literal-key",
    }
    found = asyncio.run(resolve_entries(entries, ENVIRON, masks, "env"))
    assert found["TOKEN"] == "tok-123456" and found["PLACE"] == "/home/me-myself/data"
    text = "tok-123456 /home/me-myself/data verbose-mode literal-key"
    assert masks.mask(text) == "[secret] /home/me-myself/data verbose-mode [secret]"


def test_masks_know_other_spellings_and_lines() -> None:
    masks = Masks()
    masks.add('pass "word"/1\nsecond-line')
    assert masks.mask(r"say pass \"word\"/1") == "say [secret]"
    assert masks.mask("u=pass%20%22word%22%2F1&x") == "u=[secret]&x"
    assert masks.mask("only second-line") == "only [secret]"
    masks.add("short")
    assert masks.mask("short") == "short"


def test_a_cut_leaves_no_piece_of_a_value() -> None:
    masks = Masks()
    assert masks.clip("x" * 50, 10) == "x" * 10
    values = ("0123456789" * 9, "abcdefgh")
    for value in values:
        masks.add(value)
    for place in range(120):
        text = "." * place + "0123456789" * 9 + "abcdefgh" * 20
        clipped = masks.clip(text, 100)
        assert len(clipped) <= 100 and "0123" not in clipped and "abc" not in clipped


def test_literals_that_look_like_secrets_are_hidden() -> None:
    masks = Masks()
    arguments = ["--verbose-mode", "https://me:pass%20word@host/x", "--api-key", "the-api-key"]
    hide_literals([*arguments, "--token=the-token", "/usr/lib/python3/site-packages"], masks)
    hide_literals(["9f8e7d6c5b4a39281706f5e4", "a-plain-word-of-letters"], masks)
    told = "pass%20word pass word the-api-key the-token 9f8e7d6c5b4a39281706f5e4"
    assert masks.mask(told) == " ".join(["[secret]"] * 5)
    public = "verbose-mode https://me@host/x /usr/lib/python3/site-packages a-plain-word-of-letters"
    assert masks.mask(public) == public


def test_a_log_rotates_masks_and_keeps_lines_apart(tmp_path: Path) -> None:
    masks = Masks()
    masks.add("hunter-two")
    log = WorkerLog(tmp_path / "logs" / "w.log", masks, max_bytes=2000)
    log.info("first\nsecond \x1b[1m hunter-two")
    for n in range(60):
        log.line("WARNING", f"line {n}")
    log.close()
    old, new = tmp_path / "logs" / "w.log.1", tmp_path / "logs" / "w.log"
    assert new.stat().st_size <= 2000 and old.stat().st_size <= 2000
    assert new.stat().st_mode & 0o777 == 0o600
    text = old.read_text() + new.read_text()
    assert "line 59" in text and "hunter-two" not in text


def test_a_full_disk_is_told_once_and_survived() -> None:
    told: list[str] = []
    log = WorkerLog(Path("/dev/full"), Masks(), lambda reason, fix: told.append(f"{reason} {fix}"))
    for _ in range(5):
        log.error("x")
    log.close()
    assert (
        len(told) == 1 and "No space left" in told[0] and "Free some" in told[0] and log.lost == 5
    )


def test_commands_are_found_beyond_the_path(tmp_path: Path) -> None:
    program = tmp_path / ".local" / "bin" / "tool"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    folders = search_path({"HOME": str(tmp_path), "PATH": "/usr/bin"})
    with pytest.raises(WorkerError, match="no permission to run") as refused:
        find_command("tool", "/", folders)
    assert f"chmod +x {program}" in refused.value.fix
    program.chmod(0o755)
    assert find_command("tool", "/", folders) == str(program)
    assert find_command("./bin/tool", str(tmp_path / ".local"), folders) == str(program)
    with pytest.raises(WorkerError, match="command not found: no-tool"):
        find_command("no-tool", "/", folders)


def test_the_newest_node_is_found_first(tmp_path: Path) -> None:
    for version in ("v9.11.2", "v22.1.0", "system", "v18.0.0", "v22.10.0"):
        (tmp_path / ".nvm" / "versions" / "node" / version / "bin").mkdir(parents=True)
    folders = search_path({"HOME": str(tmp_path), "PATH": "/usr/bin"})
    found = [folder.split(os.sep)[-2] for folder in folders if ".nvm" in folder]
    assert found == ["v22.10.0", "v22.1.0", "v18.0.0", "v9.11.2", "system"]


def test_a_home_that_cannot_be_looked_into_hides_no_other_folder() -> None:
    """A name too long stands for one without permission: root, who may run this, has all."""
    folders = search_path({"HOME": "/" + "x" * 300, "PATH": "/usr/bin:/bin"})
    assert folders[:2] == ["/usr/bin", "/bin"]
    assert find_command("sh", "/", folders) in ("/usr/bin/sh", "/bin/sh")


def test_a_command_line_in_place_of_a_program_is_not_shown() -> None:
    for command in ("no-tool --key s3cret", "/no/tool\t--key s3cret"):
        with pytest.raises(WorkerError, match="command not found: ") as caught:
            find_command(command, "/", ["/usr/bin"])
        error = caught.value
        assert "s3cret" not in f"{error} {error.fix} {error.details}"
