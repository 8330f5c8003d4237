"""What no agent may call, whatever its grant says: one table of folded names."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from interlock.bus.names import CapabilityName, folded_leaves

REMEMBERED: Final = 1 << 15
"""Answers that are kept."""
NEVER: Final = frozenset(
    {
        # starts workers or other agents
        "spawnworker",
        "spawnworkers",
        "spawnagent",
        "spawnagents",
        "spawnsubagent",
        "spawnsubagents",
        "multispawn",
        "dispatchtoharness",
        "dispatchtoharnessadmin",
        "dispatchwithreview",
        # changes who the agent's model is
        "switchprovider",
        "setprovider",
        "switchmodelprovider",
        # adds or changes servers
        "addmcpserver",
        "installmcpserver",
        "managemcpserver",
        "managemcpservers",
        "removemcpserver",
        "enablemcpserver",
        "disablemcpserver",
        "mcpserveradd",
        "mcpserverremove",
        # controls Interlock itself, or answers in a person's place
        "interlock",
        "appcommand",
        "approvalresolve",
        "resolveapproval",
        "killswitch",
        "revealkeypreview",
        "trustworkspace",
    }
)
"""Names as `interlock.bus.names.fold` writes them, so that every spelling of each is meant."""


@lru_cache(REMEMBERED)
def never_for_agents(name: str) -> bool:
    """Tell whether a capability, by its exact name, is for no agent.

    >>> never_for_agents("mcp:x/Spawn-Worker"), never_for_agents("mcp:x/spawn")
    (True, False)
    """
    return not NEVER.isdisjoint(folded_leaves(CapabilityName.parse(name)))
