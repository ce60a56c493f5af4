"""Frames survive any way of cutting the stream."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.rewards.worker_protocol import FrameReader, encode


@given(st.lists(st.binary(max_size=200), max_size=8), st.lists(st.integers(1, 40), min_size=1, max_size=10))
@settings(max_examples=100, deadline=None)
def test_messages_arrive_whole_and_in_order(messages, cuts):
    stream = b"".join(encode(message) for message in messages)
    reader, arrived, place, turn = FrameReader(), [], 0, 0
    while place < len(stream):
        size = cuts[turn % len(cuts)]
        arrived += reader.feed(stream[place : place + size])
        place, turn = place + size, turn + 1
    assert arrived == messages
