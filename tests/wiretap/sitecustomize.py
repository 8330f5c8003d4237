"""Put on the path of a supervisor under test: writes every ticket that it issues to a file.

The interpreter imports this by itself, so nothing in the product knows of it.
"""

import os

from interlock.bus import tickets

_mint = tickets.mint


def _tapped(key: bytes, claims: tickets.TicketClaims) -> str:
    token = _mint(key, claims)
    with open(os.environ["WIRETAP"], "a") as file:
        file.write(token + "\n")
    return token


if "WIRETAP" in os.environ:
    tickets.mint = _tapped
