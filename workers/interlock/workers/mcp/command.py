"""What exactly to start for one server: program, arguments, environment and folder."""

from __future__ import annotations

from interlock.bus.settings import McpConfigure
from interlock.workers.failure import WorkerError
from interlock.workers.programs import Command, Wanted, build_program
from interlock.workers.secrets import OWN_PREFIX, Masks, environment, resolve_entries


async def build_command(configure: McpConfigure, masks: Masks) -> Command:
    """Resolve the references of an entry and find its program.

    Raises WorkerError, always permanent: not_supported, secret_unresolved, bad_cwd,
    command_not_found, no_permission, config.
    """
    settings = configure.settings
    where = f"mcp_servers.{configure.server}"
    if settings.type not in (None, "stdio") or not settings.command:
        raise WorkerError(
            "not_supported",
            f"{where} is not a server over stdio, and other servers are not supported yet",
            fix="Set `command` to a program that serves over stdio, or set `enabled = false`.",
            permanent=True,
        )
    wanted = Wanted(settings.command, settings.args, settings.env, settings.cwd, settings.limits)
    command = await build_program(where, configure.folder, wanted, masks)
    if not settings.api_key_env or settings.api_key_env.startswith(OWN_PREFIX):
        return command
    key = await resolve_entries(
        {settings.api_key_env: ""}, environment(), masks, f"{where}.api_key_env"
    )
    return command._replace(env={**command.env, **key})
