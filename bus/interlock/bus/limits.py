"""The version of the protocol and the limits that bound its messages; `messages` has them, too."""

from __future__ import annotations

from typing import Final

PROTOCOL: Final = 1
"""Version of everything on this page; a peer with another number is refused by name."""
MAX_MESSAGE: Final = 64 << 20
"""Bytes of one frame, on any socket."""
MAX_HEADER: Final = 1 << 20
"""Bytes of one header."""
MAX_TEXT: Final = 1 << 20
"""Bytes of the text of a turn or other request, as JSON."""
MAX_ARGUMENTS: Final = 1 << 20
"""Bytes of arguments of a call that policy or an approval depends on, and of those of a program."""
MAX_VALUES: Final = 50_000
"""Values in such arguments: more would hold up everybody else for too long."""
MAX_NESTING: Final = 200
"""Depth of a JSON or msgpack document beyond which it is refused."""
CHUNK: Final = 256 << 10
"""Bytes of one chunk of a result."""
CHUNK_WINDOW: Final = 8
"""Chunks that may be under way before the caller has to grant credit."""
ZERO_COPY: Final = 64 << 10
"""Bodies from this size on are sent without copying."""
TICKET_LIFE: Final = 60.0
"""Seconds that a ticket lives at most."""
ITEMS_BATCH: Final = 64 << 10
"""Bytes of turn items in one batch."""
MAX_DOCUMENTS: Final = 32 << 20
"""Bytes of the documents of all tools of one worker; they are reported in one frame."""
NO_THREADS: Final = 71
"""Exit code of a worker that could not begin for want of threads."""
RESULT_INLINE: Final = 16 << 10
"""Bytes of a tool result that a turn item carries itself."""
