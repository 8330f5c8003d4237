"""What ZeroMQ sockets say to each other: messages arrive whole, anything else is a fault."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus.zmtp import MAX_COMMAND, ProtocolFault, Reader, opening, prefix, small_message

LIMIT = 70_000
FRAMES = st.lists(
    st.one_of(st.binary(max_size=20), st.integers(250, 1000).map(bytes)), min_size=1, max_size=4
)


def greeted(kind: str = "ROUTER", peer: str = "DEALER") -> Reader:
    reader = Reader(kind, LIMIT, 8)
    assert reader.feed(opening(peer)) == []
    assert reader.ready
    return reader


@given(st.lists(FRAMES, max_size=5), st.lists(st.integers(1, 300), min_size=1))
def test_messages_arrive_whole_however_they_are_cut(
    messages: list[list[bytes]], cuts: list[int]
) -> None:
    data = opening("DEALER") + b"".join(map(small_message, messages))
    reader = Reader("ROUTER", LIMIT, 8)
    got: list[list[bytes]] = []
    at, n = 0, 0
    while at < len(data):
        size = cuts[n % len(cuts)]
        got += reader.feed(data[at : at + size])
        at, n = at + size, n + 1
    assert got == messages
    assert reader.ready
    assert not reader._kept


@given(st.binary(min_size=1, max_size=300), st.booleans())
def test_whatever_comes_is_a_message_or_a_fault(data: bytes, introduced: bool) -> None:
    reader = greeted() if introduced else Reader("ROUTER", LIMIT, 8)
    try:
        for message in reader.feed(data):
            assert message
            assert introduced
    except ProtocolFault:
        pass


def test_a_large_frame_in_single_bytes_is_kept_once() -> None:
    reader = greeted()
    body = bytes(60_000)
    for byte in prefix(len(body), False) + body[:-1]:
        assert reader.feed(bytes((byte,))) == []
    assert len(reader._kept) < LIMIT
    assert reader.feed(b"\0") == [[body]]


COMMAND = b"\4\x06\5READY"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" + bytes(9),  # no signature
        opening("DEALER")[:10] + b"\1",  # ZMTP 2
        opening("DEALER")[:12] + b"CURVE".ljust(20, b"\0") + bytes(32),
        opening("PUB"),
        opening("DEALER")[:64] + small_message([b"x"]),  # no introduction
        opening("DEALER")[:64] + b"\4\0",
        opening("DEALER")[:64] + b"\4\x05\x09READ",
        opening("DEALER")[:64] + COMMAND,  # of no type
        opening("DEALER")[:64] + b"\4\x08\5READY\x04a",
        opening("DEALER")[:64] + b"\4\x0c\5READY\1a\0\0\0\x09",
        opening("DEALER")[:64] + b"\4\x07\5ERROR\0",
        opening("DEALER") + b"\x08\0",
        opening("DEALER") + b"\5\x01a",
        opening("DEALER") + b"\6" + (MAX_COMMAND + 1).to_bytes(8),
        opening("DEALER") + b"\2" + (LIMIT + 1).to_bytes(8),
        opening("DEALER") + b"\2" + (1 << 63).to_bytes(8),
        opening("DEALER") + (b"\3" + LIMIT.to_bytes(8) + bytes(LIMIT)) * 2,
    ],
)
def test_what_no_zeromq_socket_says_is_a_fault(data: bytes) -> None:
    with pytest.raises(ProtocolFault):
        Reader("ROUTER", LIMIT, 8).feed(data)


def test_a_message_of_many_frames_keeps_some_of_them_and_has_an_end() -> None:
    reader = greeted()
    assert reader.feed((prefix(1, True) + b"x") * 900) == []
    rest = prefix(1, False) + b"y" + small_message([b"next"])
    assert reader.feed(rest) == [[b"x"] * 8, [b"next"]]
    with pytest.raises(ProtocolFault):
        reader.feed(prefix(0, True) * 1001)


def test_of_many_messages_each_look_takes_some() -> None:
    reader = Reader("ROUTER", LIMIT, 8, most=3)
    looks = [reader.feed(opening("DEALER") + small_message([b"x"]) * 7)]
    while reader.more:
        looks.append(reader.feed(b""))
    assert [len(look) for look in looks] == [3, 3, 1]
    assert reader.feed(small_message([b"y"])) == [[b"y"]]


def test_of_many_commands_each_look_obeys_some() -> None:
    reader, looks = greeted(), 0
    reader.feed(b"\4\x07\4PING\0\x0a" * 1000 + small_message([b"x"])[:1])
    while reader.more:
        assert reader.reply
        assert reader.feed(b"") == []
        looks += 1
    assert looks >= 10
    assert reader.feed(small_message([b"x"])[1:]) == [[b"x"]]


def test_names_count_in_any_case_and_a_chosen_identity_is_told() -> None:
    reader = Reader("ROUTER", LIMIT, 8)
    ready = b"\5READY\x0bSOCKET-TYPE\0\0\0\x06DEALER\x08identity\0\0\0\2me"
    reader.feed(opening("DEALER")[:64] + bytes((4, len(ready))) + ready)
    assert reader.ready
    assert reader.identity == b"me"


def test_a_ping_is_answered_and_an_unknown_command_is_not() -> None:
    reader = greeted()
    assert reader.feed(b"\4\x0a\4PING\0\x0acon" + b"\4\x04\3NEW") == []
    assert reader.reply == b"\4\x08\4PONGcon"
    assert reader.feed(small_message([b"a"])) == [[b"a"]]
