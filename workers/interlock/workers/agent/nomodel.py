"""The driver of an agent that has no model, or one that is not supported: it says so, at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from interlock.workers.agent.driver import DriverEvent, Error, TurnContext


class NoModelDriver:
    """Fails every turn with code `no_model` and says what to configure; invents nothing."""

    def __init__(self, agent: str, model: str = "") -> None:
        self._agent = agent
        self._model = model

    async def run(self, turn: TurnContext) -> AsyncGenerator[DriverEvent, None]:
        """Yield the one error."""
        where = f"[agents.{self._agent}]"
        if self._model:
            problem = f"The model {self._model!r} of agent {self._agent!r} is not supported here"
        else:
            problem = f"Agent {self._agent!r} has no model"
        yield Error(
            "no_model",
            f"{problem}; set `model` under {where} in interlock.toml "
            '(model = "direct" takes tool calls, one a line, and needs no model).',
        )
