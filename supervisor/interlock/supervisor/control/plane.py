"""The supervisor's end of the control plane: who may speak for which worker."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import NamedTuple

import zmq

from interlock.bus.codec import decode_control_up, encode
from interlock.bus.errors import MalformedError
from interlock.bus.listening import Listening
from interlock.bus.messages import PROTOCOL, ControlDown, ControlUp, Hello
from interlock.bus.records import Boot
from interlock.bus.socket import FdSocket, open_socket


class Speaker(NamedTuple):
    """The generation that an identity stands for."""

    name: str
    generation: int


class ControlPlane:
    """A ROUTER on which only proven workers are heard.

    An identity is heard from the moment its boot record is made, and until its generation is
    forgotten; its first message must be a hello with the one-time token. Everything else is dropped
    and counted. `on_message` is called in the loop.
    """

    def __init__(
        self,
        ctx: zmq.Context[zmq.Socket[bytes]],
        address: str,
        on_message: Callable[[str, int, ControlUp, bytes | None], None],
        on_full: Callable[[bool], None] = lambda full: None,
    ) -> None:
        sock = open_socket(ctx, zmq.ROUTER)
        self.listening = Listening(sock, address, on_full, first=True)
        """How workers come in: before clients, who would take the place of one that restarts."""
        self.dropped = 0
        self._on_message = on_message
        self._expected: dict[bytes, tuple[Speaker, str]] = {}
        self._speakers: dict[bytes, Speaker] = {}
        self._identities: dict[Speaker, bytes] = {}
        self._socket = FdSocket(sock, self._received)
        self.listening.on_used = self._socket.look

    def expect(self, boot: Boot) -> None:
        """A process with that boot record is about to start."""
        speaker = Speaker(boot.name, boot.generation)
        self._expected[boot.identity] = (speaker, boot.token)
        self._identities[speaker] = boot.identity

    def forget(self, name: str, generation: int) -> None:
        """That generation has ended; nothing in its name is heard any more."""
        identity = self._identities.pop(Speaker(name, generation), None)
        if identity is not None:
            self._expected.pop(identity, None)
            self._speakers.pop(identity, None)

    def send(
        self, name: str, generation: int, message: ControlDown, body: bytes | None = None
    ) -> bool:
        """Queue a message for exactly that generation; False if it is gone or takes no more."""
        identity = self._identities.get(Speaker(name, generation))
        if identity is None or identity not in self._speakers:
            return False
        frames = [identity, encode(message)]
        return self._socket.send(frames if body is None else [*frames, body])

    def close(self) -> None:
        """Drop the socket with all that is queued."""
        self.listening.close()
        self._socket.close()

    def _received(self, frames: list[bytes]) -> None:
        identity = frames[0]
        speaker = self._speakers.get(identity)
        expected = None if speaker else self._expected.get(identity)
        if not 2 <= len(frames) <= 3 or (speaker is None and expected is None):
            self.dropped += 1
            return
        try:
            message = decode_control_up(frames[1])
        except MalformedError:
            self.dropped += 1
            return
        if isinstance(message, Hello):
            # A second hello, a wrong token and a wrong protocol are all the same: not heard.
            if expected is None or message.protocol != PROTOCOL:
                self.dropped += 1
                return
            speaker, token = expected
            if not hmac.compare_digest(token.encode(), message.token.encode("utf-8", "replace")):
                self.dropped += 1
                return
            del self._expected[identity]
            self._speakers[identity] = speaker
        elif speaker is None:
            self.dropped += 1
            return
        self._on_message(*speaker, message, frames[2] if len(frames) == 3 else None)
