"""The pure parts of the mcp worker: lines, frames, circuit, tool lists, results."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus.codec import encode
from interlock.bus.limits import MAX_DOCUMENTS
from interlock.bus.messages import MAX_HEADER, Capabilities
from interlock.bus.results import call_result
from interlock.workers import cuts
from interlock.workers.agent.cut import shown_result
from interlock.workers.mcp import results
from interlock.workers.mcp.circuit import Circuit, CircuitState
from interlock.workers.mcp.extras import Listing, read_extras
from interlock.workers.mcp.frames import (
    call_line,
    find_own_id,
    is_object,
    mend_halves,
    mend_text,
    read_error,
    read_frame,
)
from interlock.workers.mcp.lines import KEPT_OF_LONG, LineSplitter, LongLine
from interlock.workers.mcp.mending import Answered
from interlock.workers.mcp.tools import MAX_ROWS, MAX_TOOLS, read_page, read_tools


@given(st.lists(st.binary(max_size=8)), st.lists(st.integers(0, 20), max_size=8))
def test_lines_do_not_depend_on_how_the_bytes_arrive(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"\n".join(lines) + b"\n"
    splitter, found, at = LineSplitter(1000), [], 0
    for cut in cuts:
        found += splitter.feed(stream[at : at + cut])
        at += cut
    found += splitter.feed(stream[at:])
    assert found == stream[:-1].split(b"\n")


@pytest.mark.parametrize("step", [1, 7, 999, 1500, 3400])
def test_long_and_short_lines_come_out_alike(step: int) -> None:
    lines = [b"a" * size for size in (3000, 0, 5, 1024, 1023, 2500, 1, 4000, 0)]
    stream = b"\n".join(lines) + b"\n"
    splitter, found = LineSplitter(3500), []
    for at in range(0, len(stream), step):
        found += splitter.feed(stream[at : at + step])
    assert [len(line) for line in found[:7]] == [len(line) for line in lines[:7]]
    assert isinstance(found[7], LongLine)
    assert found[8:] == [b""]


@given(st.binary(min_size=11, max_size=40).filter(lambda b: b"\n" not in b), st.integers(1, 9))
def test_a_line_over_the_limit_is_thrown_away_and_the_next_is_whole(line: bytes, step: int) -> None:
    splitter, found = LineSplitter(10), []
    stream = line + b"\nnext\n"
    for at in range(0, len(stream), step):
        found += splitter.feed(stream[at : at + step])
    assert isinstance(found[0], LongLine) and not isinstance(found[1], LongLine)
    assert found[1:] == [b"next"]


def test_a_long_line_keeps_both_ends_and_little_memory() -> None:
    splitter = LineSplitter(100_000)
    assert splitter.feed(b'{"id":"i7","result":"') == []
    for _ in range(100):
        assert splitter.feed(b"x" * 10_000) == []
    [line] = splitter.feed(b'","jsonrpc":"2.0"}\n')
    assert len(line) == 2 * KEPT_OF_LONG
    assert find_own_id(line) == "i7"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"text",
        b"[]",
        b"null",
        b"{}",
        b'{"id":{}}',
        b'{"jsonrpc"',
        b"\xff\xfe",
        b'{"id":1,"result":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"id":null,"error":{}}',
    ],
    ids=lambda line: repr(line[:12]),
)
def test_what_is_no_frame_is_none(line: bytes) -> None:
    assert read_frame(line) is None


@given(st.binary(max_size=60))
def test_reading_a_frame_never_raises(line: bytes) -> None:
    read_frame(line)
    read_frame(b"{" + line + b"}")
    read_error(line)


def test_payloads_stay_as_the_server_wrote_them() -> None:
    frame = read_frame(b'{"id":"i1","result":{"b": 1,  "a":[ ]}}')
    assert frame is not None and bytes(frame.result) == b'{"b": 1,  "a":[ ]}'


@given(st.binary(max_size=40))
def test_mended_text_is_text(raw: bytes) -> None:
    assert mend_text(raw).decode() == raw.decode(errors="replace")


@given(
    st.dictionaries(st.text(max_size=5), st.none() | st.lists(st.text(max_size=5)), max_size=3),
    st.text(),
)
def test_a_request_is_one_line_of_json(arguments: dict[str, object], name: str) -> None:
    body = json.dumps(arguments, indent=2, ensure_ascii=False).encode(errors="replace")
    name = name.encode(errors="replace").decode()
    line = call_line(name, body, "i1")
    assert line.endswith(b"\n") and b"\n" not in line[:-1] and b"\r" not in line
    request = json.loads(line)
    assert request["id"] == request["params"]["_meta"]["progressToken"] == "i1"
    assert request["params"]["name"] == name
    assert request["params"]["arguments"] == json.loads(body)


@pytest.mark.parametrize("body", [b"", b"[]", b"1", b'{"a":1},{"b":2}', b'{"a":"\xff"}', b"{"])
def test_what_is_no_object_does_not_reach_a_frame(body: bytes) -> None:
    assert not is_object(body)


def test_the_circuit_walks_its_diagram() -> None:
    circuit = Circuit(open_for=10.0)
    circuit.failed(0.0, "a")
    circuit.failed(0.0, "b")
    circuit.succeeded()
    for now in (1.0, 2.0, 3.0):
        assert circuit.admit(now)
        circuit.failed(now, "it was mute")
    assert repr(circuit) == "Circuit(open, failures=3, probing=False)"
    assert circuit.reason == "circuit open: 3 calls in a row failed, last: it was mute"
    assert not circuit.admit(12.9)
    assert circuit.admit(13.0) and not circuit.admit(13.0)
    assert circuit.state is CircuitState.HALF_OPEN
    circuit.abandoned()
    assert circuit.admit(13.1)
    circuit.failed(13.2, "again")
    assert not circuit.admit(23.1) and circuit.admit(23.3)
    circuit.succeeded()
    assert repr(circuit) == "Circuit(closed, failures=0, probing=False)"


def tool(name: object = "t", **more: object) -> bytes:
    return json.dumps({"name": name, "inputSchema": {"type": "object"}} | more).encode()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"5", "not an object"),
        (b'{"name":"t","inputSchema":' + b"[" * 3000 + b"]" * 3000 + b"}", "not valid JSON"),
        (b'{"x":' + b"[" * 100 + b"]" * 100 + b"}", "nested deeper"),
        (tool(""), "no name"),
        (tool(None), "no name"),
        (tool("a\nb"), "control characters"),
        (tool("a" * 300), "too long"),
        (tool(inputSchema="x"), "not an object"),
        (tool(inputSchema={"type": "string"}), "'string' where MCP wants"),
        (tool(inputSchema={"type": ["array", "null"]}), "MCP wants object"),
        (tool(inputSchema={"properties": []}), "not an object"),
        (tool(inputSchema={"properties": {"p": "string"}}), "'p' of its inputSchema is not"),
        (tool(inputSchema={"required": "p"}), "not a list of names"),
        (tool(description="x" * 600_000), "larger than 512 KiB"),
    ],
    ids=lambda value: value if isinstance(value, str) else "tool",
)
def test_a_broken_tool_is_dropped_alone(raw: bytes, reason: str) -> None:
    found = read_tools([tool("before"), raw, tool("after")])
    assert [row.name for row in found.rows] == ["before", "after"]
    assert len(found.dropped) == 1 and reason in found.dropped[0].reason
    assert not found.dropped[0].mended


def test_small_faults_are_mended_and_named() -> None:
    found = read_tools([b'{"name":"a"}', tool("b", inputSchema={"properties": {}})])
    assert [json.loads(found.documents[row.digest])["inputSchema"] for row in found.rows] == [
        {"type": "object", "properties": {}},
        {"properties": {}, "type": "object"},
    ]
    assert [(d.name, d.mended) for d in found.dropped] == [("a", True), ("b", True)]


def test_reports_carry_what_a_tool_says_about_itself() -> None:
    notes = {"readOnlyHint": True, "destructiveHint": False, "title": "T"}
    raw = tool("a", annotations=notes, description="  First \tline.\nSecond.", later={"x": 1})
    [row] = read_tools([raw]).rows
    assert (row.summary, row.read_only, row.destructive, row.open_world) == (
        "First line.",
        True,
        False,
        None,
    )
    assert json.loads(read_tools([raw]).documents[row.digest])["later"] == {"x": 1}
    assert read_tools([tool("a", annotations={"readOnlyHint": "yes"})]).rows[0].read_only is None


def test_too_many_tools_are_bounded() -> None:
    found = read_tools([tool(f"t{n}") for n in range(MAX_TOOLS + 5)])
    assert len(found.rows) == MAX_TOOLS and len(found.dropped) == 1


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"tools":{}}', b'{"tools":[' + b"[" * 9000], ids=len
)
def test_what_is_no_page_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        read_page(body)


@pytest.mark.parametrize(
    ("body", "failed"),
    [
        (b'{"content":[],"isError":false}', False),
        (b'{"isError": true, "content":[]}', True),
        (b'{"content":[{"type":"text","text":"\\"isError\\": true"}]}', False),
        (b'{"content":[],"isError":"yes"}', True),
    ],
)
def test_errors_are_seen_without_reading_results(body: bytes, failed: bool) -> None:
    assert results.is_error(body) is failed


@pytest.mark.parametrize(
    ("body", "texts", "lost"),
    [
        (b'{"content":"hello"}', ["hello"], ""),
        (b'{"content":{"type":"text","text":"a"},"isError":true}', ["a"], ""),
        (
            b'{"content":[{"type":"text","text":"n"}],"structuredContent":{"a":1e400}}',
            ["n"],
            "structuredContent (",
        ),
        (
            b'{"content":[{"type":"text","text":"n"},{"a":%b}]}' % (b"9" * 5000),
            ["n"],
            "item 2 (",
        ),
        (
            b'{"content":[{"type":"text","text":"n"}],"x":%b1%b}' % (b'{"a":' * 900, b"}" * 900),
            ["n"],
            "x (A document is nested deeper than 200 levels)",
        ),
    ],
    ids=["text", "item", "number", "digits", "depth"],
)
def test_a_result_is_read_alike_by_a_call_and_by_a_turn(
    body: bytes, texts: list[str], lost: str
) -> None:
    """What both can read is kept, and both get the same text about the rest."""
    fit = results.fit(body)
    direct = call_result("mcp:x/t", "ok", fit)
    shown, _ = shown_result(fit)
    assert direct.content == json.loads(msgspec.json.encode(shown))
    assert [item["text"] for item in direct.content][: len(texts)] == texts
    assert len(direct.content) == len(texts) + bool(lost) and lost in direct.text
    assert results.is_error(fit) is (b"isError" in body)


@pytest.mark.parametrize("body", [b'{"content":5}', b'{"content":[],"x":1e400}', b'{"a":}', b"{"])
def test_what_holds_nothing_that_can_be_read_is_no_result(body: bytes) -> None:
    with pytest.raises(ValueError):
        results.fit(body)


@pytest.mark.parametrize("body", [b"{}", b'{"content":["a",5,null]}', b'{"content":[],"x":{}}'])
def test_what_all_can_read_stays_as_it_is(body: bytes) -> None:
    assert results.fit(body) is body


@given(st.text(max_size=3000), st.integers(0, 3000))
def test_a_cut_text_is_a_beginning_within_the_limit(text: str, room: int) -> None:
    text = text.encode(errors="replace").decode()
    items, _ = cuts.shorten([{"type": "text", "text": text}], room)
    joined = "".join(item["text"] for item in items)
    assert text.startswith(joined)
    assert joined == text or len(json.dumps(joined, ensure_ascii=False).encode()) <= room + 2


def test_the_whole_of_a_cut_result_is_kept(tmp_path: Path) -> None:
    body = json.dumps(
        {
            "content": [{"type": "text", "text": "é" * 5000}],
            "structuredContent": {"result": "x"},
            "_meta": {"k": 1},
            "isError": True,
        }
    ).encode()
    cut = cuts.cut(body, 6000, tmp_path / "results", "a/../b")
    document = json.loads(cut.body)
    assert len(cut.body) <= 6000 and cut.problem is None
    assert document["isError"] is True and document["_meta"] == {"k": 1}
    assert "structuredContent" not in document
    path = Path(document["content"][-1]["text"])
    assert path.parent == tmp_path / "results" and path.read_text() == "é" * 5000


@pytest.mark.parametrize(
    "result",
    [
        {"content": [], "_meta": {"a": "y" * 1_000_000}, "extra": "x" * 3_000_000},
        {"content": [], "isError": "x" * 1_000_000},
        {"content": [{"t": 1}] * 200_000},
        {"content": [{"type": "image", "data": "x" * 9}] * 50_000},
        {"content": [{"type": "text", "text": "x", "_meta": "y" * 1_000_000}] * 3},
        {"content": []} | {str(n): n for n in range(100_000)},
    ],
    ids=["fields", "flag", "items", "images", "item fields", "many fields"],
)
def test_no_shape_of_a_result_gets_past_the_limit(
    result: dict[str, object], tmp_path: Path
) -> None:
    body = json.dumps(result).encode()
    cut = cuts.cut(body, 100_000, tmp_path, "t")
    document = json.loads(cut.body)
    assert len(cut.body) <= 100_000
    assert Path(document["content"][-1]["text"]).stat().st_size in (1, len(body))
    assert document.get("isError", False) is ("isError" in result)


def test_a_result_is_cut_even_if_the_whole_cannot_be_kept(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    body = json.dumps({"content": [{"type": "text", "text": "x" * 9000}]}).encode()
    cut = cuts.cut(body, 4000, blocked, "t")
    assert cut.problem and len(cut.body) <= 4000
    assert "could not be kept" in json.loads(cut.body)["content"][-1]["text"]


@pytest.mark.parametrize("body", [b'{"content":5}', b"{" + b"x" * 5000, b'{"content":[5,null,{}]}'])
def test_cutting_survives_results_of_any_shape(body: bytes, tmp_path: Path) -> None:
    assert json.loads(cuts.cut(body, 3000, tmp_path, "t").body)["content"]


@given(
    st.text(st.characters(exclude_categories=()) | st.sampled_from("\\ud83d\ude00"), max_size=30)
)
def test_halves_of_characters_are_mended_and_nothing_else(text: str) -> None:
    line = json.dumps({"id": "i1", "result": [text]}).encode()
    mended = mend_halves(line)
    assert read_frame(mended) is not None
    json.loads(mended)["result"][0].encode()  # what holds no half can be written
    if all(not "\ud800" <= char <= "\udfff" for char in text):
        assert mended == line


@pytest.mark.parametrize(
    ("line", "mended"),
    [
        (rb'"a\ud83d b"', rb'"a\ufffd b"'),
        (rb'"\uDE00\ud83d\uDE00\ud83d"', rb'"\ufffd\ud83d\uDE00\ufffd"'),
        (rb'"\\ud83d \\\ud83d"', rb'"\\ud83d \\\ufffd"'),
    ],
)
def test_halves_are_told_from_pairs_and_from_plain_text(line: bytes, mended: bytes) -> None:
    assert mend_halves(line) == mended


@pytest.mark.parametrize(
    "lines",
    [
        [b'got {"id":"i1","result":{}}'],
        [b'{"id":"i1","method":"x","params":{"result":NaN}}'],
        [b'{"log":{"id":"i1"},"result":1}'],
        [b"{", b' "id": "i1",', b' "method": "x",', b' "params": {"result": 1}', b"}"],
        [b"{", b' "id": "i1"', b"}", b"{", b' "result": 1', b"}"],
    ],
    ids=str,
)
def test_what_a_server_prints_of_requests_answers_none(lines: list[bytes]) -> None:
    answered = Answered()
    assert [answered.find(line) for line in lines] == [None] * len(lines)


@pytest.mark.parametrize(
    "lines",
    [
        [b'{"id":"i1","result":NaNa}'],
        [b'{"result":{"a":' + b"x" * 100_000 + b'},"id":"i1"}'],
        [b"{", b' "id": "i1",', b' "result": {'],
        [b"{", b' "error": {},', b' "id": "i1"'],
    ],
    ids=lambda lines: str(lines)[:60],
)
def test_an_answer_that_is_no_frame_is_found(lines: list[bytes]) -> None:
    answered = Answered()
    assert [answered.find(line) for line in lines][-1] == "i1"


def test_everything_that_is_said_of_a_list_fits_into_one_header() -> None:
    long = "\U0001f600" * 250
    rows = [{"name": f"t{n}", "description": "\u4e2d" * 190} for n in range(1500)]
    bad = [{"name": f"{long}{n}", "inputSchema": {"type": "odd" * 99_000}} for n in range(300)]
    tools = read_tools([json.dumps(one).encode() for one in (*bad, *rows)])
    listing = Listing("resources/list", "resources", "resource", 500)
    uris = [json.dumps({"uri": f"x:{n}", "description": "\u4e2d" * 190}) for n in range(250)]
    none = [json.dumps({"uri": ""})] * 250
    extras = read_extras([(listing, [one.encode() for one in (*none, *uris)], "")] * 30)
    message = Capabilities(
        rows=(*tools.rows, *extras.rows), dropped=(*tools.dropped, *extras.dropped)
    )
    assert len(encode(message)) <= MAX_HEADER
    assert tools.rows and extras.rows and "further remarks" in extras.dropped[-1].reason


def test_descriptions_that_are_too_large_together_cost_the_last_tools_only() -> None:
    wide = [
        json.dumps({"name": f"t{n}", "description": "\u4e2d" * 190}).encode() for n in range(2000)
    ]
    found = read_tools(wide)
    rows = sum(len(msgspec.msgpack.encode(row)) for row in found.rows)
    assert 500 < len(found.rows) < 2000 and rows <= MAX_ROWS
    first = found.dropped[0]
    assert first.name == f"t{len(found.rows)} and further tools" and not first.mended
    deep = {"name": "x", "description": "y" * (500 << 10), "inputSchema": {"type": "object"}}
    large = [json.dumps(deep | {"name": f"t{n}"}).encode() for n in range(100)]
    assert sum(map(len, read_tools(large).documents.values())) <= MAX_DOCUMENTS
