"""Headers survive the way there and back; anything else is refused in one way."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus import codec, events, messages
from interlock.bus.errors import MalformedError, TooLargeError

DECODERS: dict[str, Callable[[bytes], Any]] = {
    "control_up": codec.decode_control_up,
    "control_down": codec.decode_control_down,
    "data_up": codec.decode_data_up,
    "data_down": codec.decode_data_down,
    "request": lambda frame: codec.decode_api_request(b"msgpack", frame),
    "request_json": lambda frame: codec.decode_api_request(b"json", frame),
    "answer": lambda frame: codec.decode_api_answer(b"msgpack", frame),
    "answer_json": lambda frame: codec.decode_api_answer(b"json", frame),
    "event": lambda frame: codec.decode_event(b"msgpack", frame),
    "event_json": lambda frame: codec.decode_event(b"json", frame),
}
PLANES: dict[str, Any] = {
    "control_up": messages.ControlUp,
    "control_down": messages.ControlDown,
    "data_up": messages.DataUp,
    "data_down": messages.DataDown,
    "request": messages.ApiRequest,
    "request_json": messages.ApiRequest,
    "answer": messages.ApiAnswer,
    "answer_json": messages.ApiAnswer,
    "event": events.AnyEvent,
    "event_json": events.AnyEvent,
}


def sample(kind: type[msgspec.Struct]) -> msgspec.Struct:
    """A message with every required field set."""
    values = {str: "x", int: 1, float: 1.5, bytes: b"x"}
    hints = typing.get_type_hints(kind)
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if not field.required:
            continue
        hint = hints[field.name]
        if typing.get_origin(hint) is typing.Literal:
            fields[field.name] = typing.get_args(hint)[0]
        else:
            fields[field.name] = values.get(hint, ())
    return kind(**fields)


@pytest.mark.parametrize("plane", DECODERS)
def test_every_message_of_a_plane_survives(plane: str) -> None:
    encoding: codec.Encoding = "json" if plane.endswith("json") else "msgpack"
    kinds = typing.get_args(PLANES[plane])
    assert len(kinds) > 2
    for kind in kinds:
        message = sample(kind)
        assert DECODERS[plane](codec.encode(message, encoding)) == message


@pytest.mark.parametrize("plane", ["data_up", "data_down"])
def test_data_headers_are_read_in_either_encoding(plane: str) -> None:
    for kind in typing.get_args(PLANES[plane]):
        message = sample(kind)
        assert DECODERS[plane](codec.encode(message, "json")) == message


@pytest.mark.parametrize("plane", DECODERS)
@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc1",
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"{",
        b"null",
        b"{}",
        b"[]",
        b'{"type":"hello"}',
        b'{"type":"\xff"}',
        b'{"type":["' + b"x" * 100 + b'"]}',
        b"[" * 10_000,
        b"\x91" * 10_000,
        b'{"type":"nonsense","x":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"topic":"worker.ready","name":' + b"[" * 10_000,
        b"\x82\xa4type\xa4open\xa1x" + b"\x91" * 10_000 + b"\x00",
    ],
)
def test_hostile_frames_are_malformed(plane: str, frame: bytes) -> None:
    with pytest.raises(MalformedError):
        DECODERS[plane](frame)


@pytest.mark.parametrize("plane", DECODERS)
def test_headers_have_a_limit(plane: str) -> None:
    with pytest.raises(TooLargeError) as caught:
        DECODERS[plane](b" " * (messages.MAX_HEADER + 1))
    assert caught.value.limit == messages.MAX_HEADER


@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=300))
def test_random_bytes_are_messages_or_malformed(plane: str, frame: bytes) -> None:
    try:
        message = DECODERS[plane](frame)
    except MalformedError:
        return
    assert isinstance(message, msgspec.Struct | dict)


@given(st.data(), st.sampled_from(sorted(DECODERS)))
def test_broken_messages_are_messages_or_malformed(data: st.DataObject, plane: str) -> None:
    encoding: codec.Encoding = "json" if plane.endswith("json") else "msgpack"
    kind = data.draw(st.sampled_from(typing.get_args(PLANES[plane])))
    frame = bytearray(codec.encode(sample(kind), encoding))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = DECODERS[plane](bytes(frame[: data.draw(st.integers(0, len(frame)))]))
    except MalformedError:
        return
    assert isinstance(message, msgspec.Struct | dict)


def test_no_message_of_another_plane_passes() -> None:
    with pytest.raises(MalformedError):
        codec.decode_data_up(codec.encode(messages.Opened(ticket="t")))
    with pytest.raises(MalformedError):
        codec.decode_control_up(codec.encode(messages.Stop()))


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_an_unknown_topic_comes_as_a_plain_dict(encoding: codec.Encoding) -> None:
    event = {"topic": "tool.polished", "epoch": "e", "seq": 4, "time": 1.0, "shine": [1]}
    encoder = msgspec.msgpack if encoding == "msgpack" else msgspec.json
    assert codec.decode_event(encoding.encode(), encoder.encode(event)) == event


@pytest.mark.parametrize("event", [{}, {"topic": "x"}, {"topic": "x", "epoch": "e", "seq": "1"}, 5])
def test_what_has_no_place_in_the_sequence_is_no_event(event: object) -> None:
    with pytest.raises(MalformedError):
        codec.decode_event(b"json", msgspec.json.encode(event))


def test_the_first_frame_names_the_encoding() -> None:
    assert codec.api_encoding(b"json") == "json"
    with pytest.raises(MalformedError):
        codec.decode_api_request(b"yaml", b"{}")


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        (b'{"type":"unknown","id":7}', 7),
        (b'{"id":"7"}', 0),
        (b'{"id":true}', 0),
        (b'{"id":-1}', 0),
        (b'{"id":' + b"9" * 40 + b"}", 0),
        (b"[" * 10_000, 0),
        (b"", 0),
    ],
)
def test_the_id_of_a_broken_request(frame: bytes, found: int) -> None:
    assert codec.request_id(b"json", frame) == found


def test_what_cannot_be_written_is_malformed() -> None:
    for message in (
        messages.Failure(id=1, code="x", message="\ud800"),
        messages.Cancel(id=1 << 70),
    ):
        with pytest.raises(MalformedError):
            codec.encode(message)


def test_bodies_are_checked_for_size_depth_and_syntax() -> None:
    deepest = messages.MAX_NESTING
    assert codec.check_json(b'{"a":[1,"x"]}') == {"a": [1, "x"]}
    assert codec.check_json(b"[" * deepest + b"]" * deepest)
    assert codec.check_json(b"[" + b"[]," * 500 + b"1]")
    # Many parts beside each other, and a long text: neither counts as depth, nor does it hide any.
    for part in (b'"x",' * 500, b'"' + b"x[" * 5000 + b'",'):
        assert codec.check_json(b"[" + part + b"[" * (deepest - 1) + b"]" * deepest)
        with pytest.raises(MalformedError):
            codec.check_json(b"[" + part + b"[" * (deepest + 1) + b"]" * (deepest + 2))
    for bad in (b"", b"{", b"\xff", b"NaN", b'{"a":' * 300 + b"1" + b"}" * 300, b"[" * 100_000):
        with pytest.raises(MalformedError):
            codec.check_json(bad)
    with pytest.raises(TooLargeError):
        codec.check_json(b"[1,2]", limit=4)


def test_bodies_are_read_as_a_type() -> None:
    assert codec.decode_as(b'["a"]', tuple[str, ...]) == ("a",)
    for bad in (b'["a",1]', b"[" * 100_000, b""):
        with pytest.raises(MalformedError):
            codec.decode_as(bad, tuple[str, ...])


def test_texts_that_cannot_be_written_are_mended_and_the_rest_stays() -> None:
    reason = "no folder /home/\udcff"
    failed = messages.WorkerFailed(code="cwd", reason=reason, fix="\ud800", permanent=True)
    with pytest.raises(MalformedError):
        codec.encode(failed)
    back = codec.decode_control_up(codec.encode(codec.mended(failed)))
    assert back == messages.WorkerFailed(
        code="cwd", reason="no folder /home/?", fix="?", permanent=True
    )
    configure = messages.Configure(key=b"\xff", endpoint="\ud800")
    assert codec.mended(configure) == messages.Configure(key=b"\xff", endpoint="?")
