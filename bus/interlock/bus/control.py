"""The worker's end of the control plane."""

from __future__ import annotations

from collections.abc import Callable

import zmq

from interlock.bus.codec import decode_control_down, encode, mended
from interlock.bus.errors import MalformedError
from interlock.bus.messages import ControlDown, ControlUp
from interlock.bus.records import Boot
from interlock.bus.socket import FdSocket, connect_socket


class ControlChannel:
    """One connection to the supervisor, under the identity of the boot record.

    `on_message` gets every message with its body; `on_bad` gets what could not be read, which is
    also counted in `dropped`. Both run in the event loop. Sends before the connection stands are
    kept, in order, within the socket's bound.
    """

    def __init__(
        self,
        ctx: zmq.Context[zmq.Socket[bytes]],
        boot: Boot,
        on_message: Callable[[ControlDown, bytes | None], None],
        on_bad: Callable[[MalformedError], None] | None = None,
    ) -> None:
        sock = connect_socket(
            ctx, zmq.DEALER, boot.control, "the supervisor", routing_id=boot.identity
        )
        self.dropped = 0
        self._on_message = on_message
        self._on_bad = on_bad
        # What is large here is rare, and each of many workers would need what sharing takes.
        self._socket = FdSocket(sock, self._received, shares=False)

    def send(self, message: ControlUp, body: bytes | None = None) -> bool:
        """Queue a message; False if the supervisor takes none any more (full queue).

        Raises `MalformedError` for one that cannot be written; lone surrogates in texts can.
        """
        try:
            header = encode(message)
        except MalformedError:
            header = encode(mended(message))
        return self._socket.send([header] if body is None else [header, body])

    def close(self, linger: float = 0.0) -> None:
        """Drop the connection; twice is harmless.

        What is queued has `linger` seconds to leave, for which the context's `term` then waits.
        """
        self._socket.close(linger)

    def _received(self, frames: list[bytes]) -> None:
        try:
            if len(frames) > 2:
                raise MalformedError("A control message has one or two frames.")
            message = decode_control_down(frames[0])
        except MalformedError as error:
            self.dropped += 1
            if self._on_bad is not None:
                self._on_bad(error)
            return
        self._on_message(message, frames[1] if len(frames) == 2 else None)
