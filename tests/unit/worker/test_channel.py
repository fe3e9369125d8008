"""Messages over a socket, with files, however the bytes are cut up."""

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.worker.channel import FRAME_BYTES_MAX, HEADER, Frames, framed, send


@given(st.lists(st.binary(max_size=50), max_size=10), st.lists(st.integers(1, 20), min_size=1))
def test_messages_come_out_whole_however_they_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(framed(message) for message in messages)
    frames, got, at, turn = Frames(), list[bytes](), 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        got += frames.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert got == messages


def test_a_message_that_announces_too_much_is_refused() -> None:
    with pytest.raises(ConnectionError):
        Frames().feed(HEADER.pack(FRAME_BYTES_MAX + 1))


def test_files_arrive_with_their_messages_and_in_order() -> None:
    left, right = socket.socketpair()
    with left, right:
        pipes = [os.pipe() for _ in range(3)]
        send(left, b"none")
        send(left, b"one", [pipes[0][1]])
        send(left, b"two", [pipes[1][1], pipes[2][1]])
        left.shutdown(socket.SHUT_WR)
        frames, got = Frames(), list[bytes]()
        while (received := frames.receive(right)) is not None:
            got += received
        assert got == [b"none", b"one", b"two"]
        files = frames.take_files(1) + frames.take_files(2)
        for number, (reading, writing) in enumerate(pipes):
            os.close(writing)
            assert not os.get_inheritable(files[number])
            os.write(files[number], b"%d" % number)
            os.close(files[number])
            assert os.read(reading, 10) == b"%d" % number
            os.close(reading)
        with pytest.raises(ConnectionError):
            frames.take_files(1)
