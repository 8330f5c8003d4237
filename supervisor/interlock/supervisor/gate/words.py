"""Text to words and stems: the only place that knows languages."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import Final

import Stemmer

_WORD: Final = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_ASCII_WORD: Final = re.compile(r"[A-Za-z0-9]+(?:'[A-Za-z0-9]+)*")
"""The same for a text that is ASCII, in half the time."""
_SPACED: Final = bytes(at if chr(at).isalnum() and at < 128 else 32 for at in range(256))
"""Letters and digits as they are, all else as spaces: quicker still where no apostrophe is."""
_HUMP: Final = re.compile(
    r"(?<=[a-zà-ÿ0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})|(?<=[A-Za-z]{2})(?=\d)"
)
_CJK: Final = re.compile(r"[぀-ヿ㐀-鿿가-힯豈-﫿]+")
_CACHE: Final = 1 << 15
LONGEST: Final = 40
"""Letters of the longest word. What is longer is a hash, a key or a dump, and no evidence.

Whatever goes over a word letter by letter, or keeps it, would be held by a word of a megabyte.
"""
MOST_PAIRS: Final = 400
"""Pairs that count of a text without spaces between words."""
_LONGEST_HUMPED: Final = 2 * LONGEST
"""Letters of the longest word that is several by its capitals."""
_STEMMERS: Final = {"en": Stemmer.Stemmer("english"), "de": Stemmer.Stemmer("german")}
_ENGLISH: Final = frozenset(
    """a about above after again against all also am an and another any anybody anyone anything are
    aren as at be because been before being below best better between both but by can cannot could
    couldn d did didn do does doesn doing don done down during each either else ever every everyone
    everything few for from further get gets getting give gives go goes going gonna good got great
    had hadn has hasn have haven having he hello help her here hers hey hi him his how i if in into
    is isn it its itself just kind know let like ll looking lot m make many may maybe me might mine
    more most much must my myself need needed needs new no nor not nothing now of off ok okay on
    once one only or other our ours out over own please possible put re really right s same she
    should shouldn show so some somebody someone something soon still such sure t take tell than
    thank thanks that the their theirs them then there these they thing things this those through
    to together too try trying under until up us use used using ve very want wanted wants was wasn
    way we well were weren what when where whether which while who whom whose why will with within
    without won would wouldn yes yet you your yours yourself actually almost already although
    always basically else etc however instead least never often otherwise perhaps quite rather
    simply since sometimes though usually via whose""".split()
)
_GERMAN: Final = frozenset(
    """ab aber alle allem allen aller alles als also am an ander andere anderen auch auf aus bei
    beim bin bis bist bitte da dabei dafür damit dann daran darauf daraus das dass dein deine deinen
    deiner dem den denn der deren des dich die dies diese diesem diesen dieser dieses dir doch dort
    du durch ein eine einem einen einer eines einige einmal er erst es etwas euch euer eure für
    gegen geht gerade gern gib gibt haben habe hab hast hat hatte hätte heißt her hier hin hinter
    hätten ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in ins ist ja jede jedem jeden jeder
    jedes jetzt kann kannst kein keine keinen keiner könnte können könntest lass machen mach mache
    macht mal man mehr mein meine meinem meinen meiner mich mir mit mochte möchte muss müssen nach
    nicht nichts noch nun nur ob oder ohne schon sehr sein seine seinen seiner seit sich sie sind so
    soll sollen sollte sonst sowie über um und uns unser unsere unseren unter vom von vor war waren
    was wegen weil welche welchem welchen welcher welches wenn wer werde werden weshalb wie wieder
    will willst wir wird wirst wo woher wohin worden wurde wurden würde würden zeig zeige zu zum
    zur zwischen""".split()
)
_GERMAN_SURE: Final = (
    _GERMAN
    - _ENGLISH
    - {
        "an",
        "am",
        "in",
        "man",
        "war",
        "was",
        "so",
        "also",
        "her",
        "hat",
        "gut",
        "den",
        "die",
        "hin",
        "will",
        "des",
        "dies",
    }
)
_UMLAUTS: Final = frozenset("äöüß")
_ENGLISH_SURE: Final = (
    _ENGLISH - _GERMAN - {"am", "an", "in", "was", "so", "mal", "her", "die", "den"}
)


def tokens(text: str) -> list[str]:
    """Return the words of a text as they are written; letters and digits, apostrophes inside.

    >>> tokens("What's in notebook-lm?")
    ["What's", 'in', 'notebook', 'lm']
    """
    if not text.isascii():
        return _WORD.findall(text)
    if "'" in text:
        return _ASCII_WORD.findall(text)
    return text.encode().translate(_SPACED).decode().split()


def parts(identifier: str) -> list[str]:
    """Return the words of a tool's or server's name in lower case.

    >>> parts("createPull_request-v2 HTTPServer")
    ['create', 'pull', 'request', 'v2', 'http', 'server']
    """
    return [piece.lower() for token in tokens(identifier) for piece in _HUMP.split(token) if piece]


def humps(token: str) -> list[str]:
    """Return the words inside a word with capitals in the middle, else nothing.

    >>> humps("FinanceTool"), humps("Finance"), humps("NASA")
    (['finance', 'tool'], [], [])
    """
    if len(token) > _LONGEST_HUMPED or token.islower() or token.isupper() or token.istitle():
        return []
    found = [piece.lower() for piece in _HUMP.split(token) if piece]
    return found if len(found) > 1 else []


def is_german(lowered: list[str]) -> bool:
    """Tell whether a text is German, by its function words and umlauts; in doubt it is not."""
    if _GERMAN_SURE.isdisjoint(lowered) and "".join(lowered).isascii():
        return False
    words = set(lowered)
    german = len(_GERMAN_SURE & words)
    german += sum(not _UMLAUTS.isdisjoint(word) for word in words if not word.isascii())
    return german > len(_ENGLISH_SURE & words)


def pairs(run: str) -> list[str]:
    """Return the overlapping pairs of characters of a text without spaces between words.

    >>> pairs("天气预报")
    ['天气', '气预', '预报']
    """
    return [run] if len(run) < 2 else [run[i : i + 2] for i in range(len(run) - 1)]


def english(word: str) -> tuple[str, ...]:
    """Return the terms of one lower-case word of an English or unknown text; of a long one none."""
    if not word.isascii() and _CJK.search(word):
        return _paired(word)
    return _stems(word, False) if len(word) <= LONGEST else ()


def german(word: str) -> tuple[str, ...]:
    """Return the terms of one lower-case word of a German text: its German stem, then its English.

    >>> german("termine"), german("translations"), german("die")
    (('termin',), ('translation', 'translat'), ())
    """
    if not word.isascii() and _CJK.search(word):
        return _paired(word)
    return _stems(word, True) if len(word) <= LONGEST else ()


def _paired(word: str) -> tuple[str, ...]:
    found = (pair for run in _CJK.findall(word) for pair in pairs(run))
    return tuple(islice(found, MOST_PAIRS))


@lru_cache(maxsize=2 * _CACHE)
def _stems(word: str, german: bool) -> tuple[str, ...]:
    word = word.replace("\u2019", "'").partition("'")[0]
    if word in (_GERMAN if german else _ENGLISH) or len(word) < 2 or word.isdigit():
        return ()
    stem = _english_stem(word)
    if not german:
        return (stem,)
    return tuple(dict.fromkeys((fold(_STEMMERS["de"].stemWord(word)), stem)))


def _english_stem(word: str) -> str:
    """Return the Snowball stem, but with "-al" and "-at-" left on.

    Without them "terminals" and "terminator" would be what remains of "Termin".
    """
    stem = str(_STEMMERS["en"].stemWord(word))
    rest = word[len(stem) :]
    if word.startswith(stem) and len(rest) > 1:
        if rest in ("al", "als"):
            return stem + "al"
        if rest.startswith("at"):
            return stem + "at"
    return stem


def fold(word: str) -> str:
    """Return a German word without umlauts, which many people do not type."""
    if word.isascii():
        return word
    return word.replace("ä", "a").replace("ö", "o").replace("ü", "u").replace("ß", "ss")
