"""`interlock trust`: lets the files of a workspace act, after showing what they would start."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from interlock.bus.errors import ConfigError, InterlockError, NoSupervisorError, NotFoundError
from interlock.supervisor.cli.exits import DONE
from interlock.supervisor.cli.given import json_document
from interlock.supervisor.cli.output import agreed, document, exact, note, options, write
from interlock.supervisor.cli.session import client
from interlock.supervisor.config.content import parse
from interlock.supervisor.config.text import BadFileError, read_bytes
from interlock.supervisor.config.trust import changing_trust, digest, effects, read_trust, trust_key
from interlock.supervisor.config.workspace import find_workspace, workspace_files


@click.command
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--list", "listing", is_flag=True, help="Show what is trusted.")
@click.option("--revoke", is_flag=True, help="Take the trust in PATH back.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_document
def trust(path: Path | None, listing: bool, revoke: bool, yes: bool, as_json: bool) -> int:
    """Let the files of the workspace at PATH, or one file, act as they are now."""
    record = options().place.trust
    if listing:
        return _list(record, as_json)
    if revoke:
        return _revoke(record, path or Path.cwd(), as_json)
    contents = _contents(_files(path))
    show = note if as_json else write
    for file, data in contents.items() if not (as_json and yes) else ():
        show(exact(f"{file} would"))
        for name, effect in effects(parse(file, data)[0].tables) or [("", "do nothing")]:
            # A line for each: nothing in an entry may look like another one, or hide.
            show(f"  {exact(f'{name}: {effect}' if name else effect)}")
    for file in () if as_json and yes else _replaced(record, contents):
        show(exact(f"In place of {file}, which counts here now and will not any more."))
    if not yes and not agreed("Let them?"):
        raise InterlockError(
            "Nothing was changed, for nobody said yes; answer y, or give --yes.",
            code="not_confirmed",
        )
    with changing_trust(record) as trusted:
        trusted |= {trust_key(file): digest(data) for file, data in contents.items()}
    _taken_up()
    if as_json:
        document({"trusted": [str(file) for file in contents]})
    else:
        write(exact(f"Trusted as they are now: {', '.join(map(str, contents))}."))
    return DONE


def _files(path: Path | None) -> list[Path]:
    """Return the files that are meant: one that is named, or all of a workspace."""
    if path is not None and not path.exists():
        raise NotFoundError(f"{path} does not exist; name a file or the folder of a workspace.")
    if path is not None and not path.is_dir():
        return [path.absolute()]
    folder = find_workspace(Path.cwd()) if path is None else path.absolute()
    found = [each.path for each in workspace_files(folder) if os.path.lexists(each.path)]
    if not found:
        raise NotFoundError(f"{folder} has no interlock.toml and no .mcp.json to trust.")
    return found


def _contents(files: list[Path]) -> dict[Path, bytes]:
    """Return the bytes of each file, all of which can be read and understood."""
    contents: dict[Path, bytes] = {}
    for file in files:
        try:
            data = read_bytes(file)
            if data is None:
                raise BadFileError("unreadable", "there is no such file")
            parse(file, data)
        except BadFileError as error:
            place = f"{file}:{error.line}" if error.line else str(file)
            raise ConfigError(
                f"{place}: {error.message}; mend it first.", code=error.code
            ) from None
        contents[file] = data
    return contents


def _replaced(record: Path, contents: Iterable[Path]) -> list[Path]:
    """Return the trusted files of a folder above that count now, and would not after this."""
    known, fresh = _known(record), {trust_key(file) for file in contents}

    def recorded(path: Path) -> bool:
        return trust_key(path) in known

    folder = next(iter(contents)).parent
    now = find_workspace(folder, recorded)
    after = find_workspace(folder, lambda path: recorded(path) or trust_key(path) in fresh)
    files = [each.path for each in workspace_files(now)]
    return [file for file in files if recorded(file)] if after != now else []


def _known(record: Path) -> dict[str, str]:
    """Return what is recorded; a damaged record counts as empty, as it does for the supervisor."""
    try:
        return read_trust(record)
    except BadFileError:
        return {}


def _list(record: Path, as_json: bool) -> int:
    trusted = _known(record)
    rows = []
    for name, recorded in trusted.items():
        try:
            data = read_bytes(Path(name))
        except BadFileError:
            data = None
        state = "gone" if data is None else "trusted" if digest(data) == recorded else "changed"
        rows.append({"file": name, "state": state})
    if as_json:
        document({"trusted": rows})
    for row in [] if as_json else rows:
        write(exact(f"{row['state']:8} {row['file']}"))
    if not rows and not as_json:
        write("No workspace file is trusted.")
    return DONE


def _taken_up() -> None:
    """Wait until a supervisor that runs on this home has read its configuration again."""
    try:
        with client() as bus:
            bus.reload()
    except NoSupervisorError:
        return
    except InterlockError as error:
        note(f"The supervisor has not read it yet, it will within seconds: {error.message}")


def _revoke(record: Path, path: Path, as_json: bool) -> int:
    key, folder = trust_key(path.absolute()), os.path.realpath(path)
    with changing_trust(record) as trusted:
        gone = [name for name in trusted if name == key or os.path.dirname(name) == folder]
        if not gone:
            raise NotFoundError(f"{path} is not trusted; `interlock trust --list` shows what is.")
        for name in gone:
            del trusted[name]
    _taken_up()
    if as_json:
        document({"revoked": gone})
    else:
        write(exact(f"No longer trusted: {', '.join(gone)}."))
    return DONE
