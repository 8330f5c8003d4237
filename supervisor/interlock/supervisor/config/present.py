"""Whether what the entries name is on this machine: their programs and folders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping

from interlock.bus.own import runs_interlock
from interlock.bus.references import KEYRING, foreign, keyring_fault, references
from interlock.bus.searchpath import WHOLE_COMMAND, not_there, search_path, set_before, source_hint
from interlock.supervisor.config.model import CliEntry, Problem, ServerEntry, Settings, worker_name


def absent(settings: Settings, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a warning for each enabled entry whose program or folder cannot be used now.

    Looks at the disk and starts nothing. What a variable decides is not known here and left alone.
    """
    folders = os.pathsep.join(search_path(environ))
    for section in ("mcp_servers", "cli_tools"):
        entries: Mapping[str, ServerEntry | CliEntry] = getattr(settings, section)
        for name, entry in entries.items():
            if entry.settings.enabled:
                unresolved = (
                    (key, "secret_unresolved", why, fix)
                    for key, why, fix in _unresolved(entry, environ)
                )
                for key, code, message, fix in (*unresolved, *_missing(entry, folders)):
                    yield Problem(
                        file=entry.origin.file,
                        line=entry.origin.line,
                        key=f"{section}.{name}.{key}",
                        message=f"{worker_name(section, name)}: {message}",
                        severity="warning",
                        code=code,
                        fix=fix,
                    )


def _unresolved(
    entry: ServerEntry | CliEntry, environ: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield key, message and fix for each reference in the entry that nothing stands for, once."""
    settings = entry.settings
    values: Mapping[str, Iterable[str]]
    values = {"command": [settings.command], "args": settings.args, "env": _env(settings.env)}
    seen: set[str] = set()
    for key, texts in values.items():
        for reference in (each for text in texts for each in references(text)):
            if reference in seen or reference in environ:
                continue
            seen.add(reference)
            if reference.startswith(KEYRING):
                if fault := _no_keyring():
                    yield key, f"${{{reference}}} cannot be read: {fault[0]}", fault[1]
            elif strange := foreign(reference):
                yield key, f"${{{reference}}} is no variable: {strange[0]}", strange[1]
            elif ":-" not in reference and reference.strip():
                fix = f"{set_before(reference)}, or write a default."
                yield key, f"the variable {reference} is not set", fix


def _no_keyring() -> tuple[str, str] | None:
    """Why no keyring can be read, and what to do. Does not look into it: it may be locked."""
    import keyring  # imported where it is needed: it costs 60 ms

    backend = type(keyring.get_keyring())
    return keyring_fault(f"{backend.__module__}.{backend.__qualname__}")


def _env(entries: Mapping[str, str]) -> list[str]:
    """The values of `env`; an empty one is that of the variable of the same name."""
    return [value or f"${{{name}}}" for name, value in entries.items()]


def _missing(entry: ServerEntry | CliEntry, folders: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield key, code, message and fix."""
    command, cwd = entry.settings.command, entry.settings.cwd or ""
    if "$" in cwd:
        return
    folder = os.path.join(entry.folder, os.path.expanduser(cwd))
    if not os.path.isdir(folder):
        yield "cwd", "bad_cwd", f"there is no folder {folder}", "Make it, or mend `cwd`."
        return
    if not command or "$" in command or "PATH" in entry.settings.env:
        return
    # Words after the program may hold a secret, as arguments do.
    shown = command.split(maxsplit=1)[0] if command.strip() else command
    program = os.path.expanduser(command)
    if os.sep in program:
        path = os.path.join(folder, program)
        if os.path.isdir(path):
            fix = "Write the path of the program in it as `command`."
            yield "command", "no_permission", f"{shown} is a folder, not a program", fix
            return
        if os.path.exists(path) and not os.access(path, os.X_OK):
            fix = "Make it executable, or write the program that runs it as `command`."
            yield "command", "no_permission", f"{shown} cannot be run", fix
            return
        found = path if os.path.exists(path) else None
    else:
        found = shutil.which(program, path=folders)
    if found is None:
        if shown != command and isinstance(entry, ServerEntry) and not entry.settings.args:
            return  # told of as a whole command line
        fix = source_hint(shown) + not_there(shown)
        if shown != command:
            shown, fix = f"{shown} and what follows it in `command`", WHOLE_COMMAND
        yield "command", "command_not_found", f"command not found: {shown}", fix
    elif isinstance(entry, CliEntry) and _is_interlock(os.path.abspath(found), entry, folder):
        message = "it would run Interlock itself, and agents never may"
        yield "command", "forbidden_command", message, "Name another program, or take it out."


def _is_interlock(program: str, entry: CliEntry, folder: str) -> bool:
    known = [word for word in entry.settings.args if "$" not in word]
    return runs_interlock((program, *known), folder)
