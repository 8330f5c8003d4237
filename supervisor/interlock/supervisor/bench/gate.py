"""How long the gate takes to decide, with few servers and with many."""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path
from typing import Final

from interlock.supervisor.bench.lab import Say
from interlock.supervisor.gate import GateIndex, SourceText, decide
from interlock.supervisor.shipped import tables

ROUNDS: Final = 50
TOOLS: Final = 8
VERBS: Final = "get list create update delete search send move export compare count plan".split()
NOUNS: Final = """account address album alert animal article audio balance book branch bridge budget
calendar camera candidate chart city claim color company contact contract country course currency
customer database delivery deployment device document domain employee event exchange exercise
expense file flight folder forecast game garden hotel image ingredient inventory invoice issue
journey keyword language library license map market meal meeting message metric movie museum note
notebook order package parcel patient payment photo playlist portfolio price product project
property quote recipe record region release repository reservation review river robot route rumor
salary school score sensor server shipment song statement stock story student subscription summary
survey team template ticket token topic trail train translation vehicle video voice wallet weather
wedding workout""".split()
REQUESTS: Final = (
    "What's the weather like in Lisbon tomorrow?",
    "Find me a flight to Rome in April under 200 euros",
    "Put lunch with Anna on my calendar for Friday at noon",
    "Which issues are still open in the website repository?",
    "Open a pull request for this branch and ask Tom for a review",
    "How much is a share of that company worth in dollars now?",
    "Thanks, that was very helpful",
    "Write a short poem about the sea for my sister's birthday",
    "Send the invoice for last month to the customer and file a copy",
    "Can you translate this contract into French and keep the headings?",
    "Show me every message about the deployment since yesterday",
    "and close that one too",
    "I need a recipe for a quick meal with what is left in the fridge",
    "Why is the sky blue?",
    "Compare the price of these two products and tell me which to buy",
    "Turn the notes of my biology course into a summary with a chart",
    "Wie wird das Wetter am Wochenende in Hamburg?",
    "Trag bitte einen Termin beim Zahnarzt am Dienstag um neun ein",
    "Remind me to water the garden when I am home again",
    "Where is my parcel, and when does the delivery come?",
)


def servers(number: int) -> list[SourceText]:
    """Return made-up servers with eight tools each; always the same."""
    dice = random.Random(number)
    found = []
    for count in range(number):
        first, second = dice.sample(NOUNS, 2)
        about = [first, second, *dice.sample(NOUNS, 3)]
        tools = tuple(
            (
                f"{dice.choice(VERBS)}_{(noun := dice.choice(about))}",
                f"{dice.choice(VERBS).title()} a {noun} by its {dice.choice(about)}, with the "
                f"{dice.choice(NOUNS)} it belongs to",
            )
            for _ in range(TOOLS)
        )
        found.append(SourceText(f"mcp:s{count}", f"{first}-{second}-{count}", "", tools))
    return found


def decision_us(number: int, say: Say) -> float:
    """Return the median CPU time of one decision, in microseconds."""
    texts, known = servers(number), tables()
    before = time.thread_time()
    index = GateIndex.build(texts, known)
    say(f"gate: an index of {number} servers built in {time.thread_time() - before:.2f} s")
    for text in REQUESTS:
        decide(index, text)
    taken = []
    for _ in range(ROUNDS):
        for text in REQUESTS:
            before = time.thread_time_ns()
            decide(index, text)
            taken.append(time.thread_time_ns() - before)
    return statistics.median(taken) / 1_000


def measure_gate(folder: Path, say: Say) -> dict[str, float]:
    """Return `gate_us_30` and `gate_us_1000`; the folder stays empty."""
    return {"gate_us_30": decision_us(30, say), "gate_us_1000": decision_us(1_000, say)}
