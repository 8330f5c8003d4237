"""The `interlock` command: its options, its commands, loaded when used, and its one boundary.

Every failure of a command ends here as one sentence and an exit code; a traceback never does.
"""

from __future__ import annotations

import errno
import os
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from interlock.bus.errors import InterlockError
from interlock.bus.remedies import disk_remedy
from interlock.bus.threads import no_thread
from interlock.supervisor.cli import output
from interlock.supervisor.cli.exits import DONE, FAILED, INTERRUPTED, USAGE, code_of
from interlock.supervisor.cli.interrupts import by_interrupt, interruptible, uninterruptible

_TOO_MANY: Final = (errno.EMFILE, errno.ENFILE)
_NO_THREAD: Final = "can't start new thread"
"""What Python says then; it has no class of its own for it."""
_HERE: Final = "interlock.supervisor.cli"
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("demo", "Show everything in a temporary home"),
    "up": ("up", "Start the supervisor and everything configured"),
    "down": ("down", "Stop everything in order"),
    "status": ("status", "Show the health of every process"),
    "attach": ("attach", "Follow events as they happen"),
    "logs": ("logs", "Show a worker's log"),
    "start": ("workers", "Start workers by hand"),
    "stop": ("workers", "Stop workers by hand"),
    "restart": ("workers", "Restart workers by hand"),
    "turn": ("turn", "Send a turn to an agent and stream its answer"),
    "turns": ("turns", "List the turns of the journal"),
    "turn-show": ("turns", "Show one turn with its calls"),
    "turn-watch": ("turn", "Watch a turn from its start or an offset"),
    "turn-cancel": ("turns", "Cancel a turn"),
    "call": ("call", "Call one capability directly"),
    "tools": ("tools", "List the catalog, or an offer"),
    "why": ("why", "Show why each source is offered for a request or not"),
    "approvals": ("approvals", "List the calls that wait for a person"),
    "approve": ("approvals", "Let a waiting call run, once"),
    "deny": ("approvals", "Refuse a waiting call"),
    "trust": ("trust", "Let the files of a workspace act"),
    "validate": ("validate", "Check configuration, with line numbers"),
    "bench": ("bench", "Measure the budgets on this machine"),
}
"""Module and one line of help of each command; the module has a command of that name."""


_TEXT: Final = "Put the whole text in quotes. "
_EXTRA: Final = {
    "up": "A file of configuration is named by `--config FILE`. ",
    "turn": _TEXT,
    "why": _TEXT,
    "call": "The arguments are one JSON object in quotes. ",
}
"""What somebody probably meant who gives a command more words than it takes."""
_MEANT: Final = {"help": "--help", "version": "--version", "list": "status", "ps": "status"}
"""What people type who know other programs."""

_LIKE: Final = 0.7
"""How like a word has to be to a command to be taken for it; less is far-fetched."""


class LazyGroup(click.Group):
    """A group that imports a command's module when that command is used, and not for `--help`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command and give it the options that every command has."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"{_HERE}.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        known = {name for parameter in command.params for name in parameter.opts}
        command.params += [
            option for option in _global_options(True) if option.opts[0] not in known
        ]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, which may be interrupted from now on.

        For a misspelt one, name the nearest.
        """
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = [_MEANT[args[0]]] if args[0] in _MEANT else []
            near = near or get_close_matches(args[0], COMMANDS, 1, _LIKE)
            hint = f"did you mean {near[0]}? All" if near else "all"
            message = f"There is no command {args[0]}; {hint} are in `interlock --help`."
            raise click.UsageError(message, ctx)
        found = super().resolve_command(ctx, args)
        interruptible()
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in COMMANDS.items()])


def _set_home(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None and not value.strip():
        # An unset variable in a script; the folder that it would mean is the current one.
        raise click.UsageError("--home is empty; name a folder, or leave it out.")
    if value is not None:
        ctx.ensure_object(output.Options).chosen_home = Path(value).expanduser().absolute()


def _set_verbose(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(output.Options).verbose = True


def _set_plain(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(output.Options).color = False


def _show_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        output.write(f"interlock {version('interlock')}")
        ctx.exit(0)


def _global_options(hidden: bool) -> list[click.Parameter]:
    """Return the options that stand before or after the command's name."""
    common: dict[str, Any] = {"expose_value": False, "hidden": hidden}
    return [
        click.Option(
            ["--home"],
            metavar="DIR",
            callback=_set_home,
            help="Where state, sockets, logs and journal live (or INTERLOCK_HOME).",
            **common,
        ),
        click.Option(
            ["--verbose"],
            is_flag=True,
            callback=_set_verbose,
            help="Show details of a mistake of Interlock's own.",
            **common,
        ),
        click.Option(
            ["--no-color"],
            is_flag=True,
            callback=_set_plain,
            help="Write without colours (or NO_COLOR).",
            **common,
        ),
    ]


def _version_option() -> click.Option:
    return click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help="Show the version.",
    )


app = LazyGroup(
    name="interlock",
    help="Runs MCP servers and agents as isolated, supervised processes on one message bus.",
    params=[*_global_options(False), _version_option()],
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; nothing is raised."""
    output.prepare_streams()
    options = output.Options("--json" in arguments)
    try:
        return _run(arguments, options)
    except (KeyboardInterrupt, click.Abort) as error:
        uninterruptible()
        if not isinstance(error, click.Abort):  # Click has ended the line of the ^C already.
            output.note("")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one boundary: a user never sees a traceback
        if by_interrupt(error):
            return INTERRUPTED
        if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
            limit = no_thread()
            output.failure(options, limit.code, limit.message)
            return FAILED
        _unexpected(options, error)
        return FAILED


def _run(arguments: list[str], options: output.Options) -> int:
    """Run one command, tell of every failure that can be foreseen, and return the exit code."""
    try:
        result = app.main(arguments, "interlock", standalone_mode=False, obj=options)
        return result if isinstance(result, int) else DONE
    except InterlockError as error:
        output.failure(options, error.code, error.message)
        return code_of(error)
    except click.exceptions.NoArgsIsHelpError as error:
        output.offer(error.format_message())
        return USAGE
    except click.UsageError as error:
        output.failure(options, "wrong_usage", _with_usage(error))
        return USAGE
    except click.ClickException as error:
        output.failure(options, "failed", error.format_message())
        return FAILED
    except (output.ReaderGoneError, SystemExit):  # SystemExit: click's own word for it.
        output.discard_stdout()
        return DONE  # The reader has what it wanted.
    except OSError as error:
        output.failure(options, "failed", _refused(error))
        return FAILED


def _refused(error: OSError) -> str:
    """Say what the system refused, and what to do where that is known."""
    if error.errno == errno.ENOENT and not error.filename:
        try:
            os.getcwd()
        except FileNotFoundError:
            return "The folder in which this runs was removed; change to another one."
    where = f" ({error.filename})" if error.filename else ""
    todo = f" {disk_remedy(error.errno, '')}." if error.errno in _TOO_MANY else ""
    return f"The system refused: {error.strerror or error}{where}.{todo}"


def _with_usage(error: click.UsageError) -> str:
    """Return the sentence of an error, and how the command is used where that says more."""
    message = error.format_message()
    if error.ctx is None or error.ctx.parent is None:
        return message
    path = error.ctx.command_path
    if isinstance(error, click.MissingParameter):
        usage = " ".join(error.ctx.get_usage().split())
        return f"{message} {usage} (`{path} --help` says more)"
    if "unexpected extra argument" in message:
        hint = _EXTRA.get(error.ctx.info_name or "", "")
        return f"{message}. {hint}See `{path} --help`."
    if isinstance(error, click.NoSuchOption):
        return f"{message} See `{path} --help`."
    return message


def _unexpected(options: output.Options, error: Exception) -> None:
    """Tell of a mistake of our own; where it happened is shown with --verbose."""
    import traceback

    where = "".join(traceback.format_exception(error))
    hint = "run it again with --verbose for the details"
    if options.verbose:
        output.note(where)
        hint = "please report it with the lines above"
    name = type(error).__name__
    output.failure(options, "internal", f"Interlock made a mistake ({name}: {error}); {hint}.")
