"""Files that are made to cost time: anybody may put one into a folder that somebody works in."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from interlock.supervisor.config import Loaded, load
from interlock.supervisor.config.content import parse
from interlock.supervisor.config.reading import MAX_UNTRUSTED, TRUST_FILE
from interlock.supervisor.config.text import BadFileError
from interlock.supervisor.config.trust import digest, effects, trust_key, write_trust

SIZE = 200_000
"""Characters: a tenth of a second in linear time."""
JSON = ("/* ", "/*", '\\"', '"\\', '// \\"\n', ", ", ",\n ", '/* " ', "[ ", "{} // ", "*/*")
TOML = (
    "a.",
    '"a".',
    "a = 1\n",
    "'",
    '"""\\',
    "# .\n",
    "[a.b.c]\n",
    "\\'\"",
    "''' ' '' ",
    "a . b=1\n",
)
REFERENCES = ("${keyring:", "${A:-", "${A", "${keyring:$", ' "${')


def read(home: Path, folder: Path) -> Loaded:
    return load(home, folder, None, {"HOME": str(home), "XDG_CONFIG_HOME": str(home)})


@pytest.mark.parametrize("piece", [*JSON, *TOML, *REFERENCES])
@pytest.mark.parametrize("name", [".mcp.json", "c.toml"])
def test_no_text_takes_more_than_linear_time(name: str, piece: str) -> None:
    """A pattern that reads a character twice would take minutes for these, and hold everything."""
    for text in (piece * (SIZE // len(piece)), f'{{"a": "x", // {piece * 30_000}\n}}'):
        with suppress(BadFileError):
            parse(Path("/w") / name, text.encode())


@pytest.mark.parametrize("piece", REFERENCES)
def test_no_value_takes_more_than_linear_time(piece: str) -> None:
    entry = {"command": "x", "env": {"A": piece * 100_000}}
    assert len(effects({"mcp_servers": {"x": entry}})) == 1


def test_a_key_of_very_many_parts_is_refused_with_its_place() -> None:
    for parts in ("a.b.c.", "a . \"b\" . 'c'\t."):
        with pytest.raises(BadFileError, match="nested too deeply") as caught:
            parse(Path("/w/c.toml"), f"b = 1\n{parts * 20_000}d = 1".encode())
        assert (caught.value.code, caught.value.line) == ("syntax", 2)


def test_texts_and_comments_with_many_dots_are_no_keys() -> None:
    dots = "a." * 100
    text = "\n".join(
        (
            f"# {dots}",
            f'a = "{dots}" # {dots}',
            f"b = ''''{dots}\n'{dots}''''",
            f'c = """"{dots}\\" {dots}\n"{dots}""""',
            f'd = [\'{dots}\', 1.5, {{ e.f = "\\\\\\"{dots}" }}]',
        )
    )
    assert list(parse(Path("/w/c.toml"), text.encode())[0].tables) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ('{"x": {"command": "/* a */ // b", /* c " */ "args": ["\\"//"],}, // d "\n}', ["x"]),
        ('{"x": {"url": "http://y"}} /* not closed', None),
        ('{"x": {"url": "http://y}}', None),
    ],
)
def test_comments_in_shared_files(text: str, servers: list[str] | None) -> None:
    if servers is None:
        with pytest.raises(BadFileError):
            parse(Path("/w/.mcp.json"), text.encode())
    else:
        tables = parse(Path("/w/.mcp.json"), text.encode())[0].tables
        assert list(tables["mcp_servers"]) == servers
        assert tables["mcp_servers"]["x"] == {"command": "/* a */ // b", "args": ['"//']}


def test_a_large_untrusted_file_is_not_looked_into(tmp_path: Path) -> None:
    own = tmp_path / "interlock.toml"
    own.write_text("[mcp_servers.x]\ncommand = 'x'\n" + "[" * MAX_UNTRUSTED)
    home = tmp_path / "home"
    (problem,) = read(home, tmp_path).problems
    assert (problem.code, problem.fix) == ("untrusted", f"interlock trust {own}")
    assert "too large" in problem.message
    write_trust(home / TRUST_FILE, {trust_key(own): digest(own.read_bytes())})
    assert [each.code for each in read(home, tmp_path).problems] == ["syntax"]


def test_what_is_told_of_an_untrusted_entry_is_short(tmp_path: Path) -> None:
    own = tmp_path / "interlock.toml"
    own.write_text(f"[mcp_servers.{'n' * 9_000}]\n{'k' * 9_000} = 1\n")
    (problem,) = read(tmp_path / "home", tmp_path).problems
    assert max(map(len, (problem.message, problem.key, problem.entry))) < 300
