"""Pipes, credits, and what becomes of them in a forked child."""

import os
import time

import pytest

from bpeflow.flow.descriptors import Credits, Descriptor, EndOfStreamError, pipe, read_exactly, write_all


def test_thousands_of_buffers_are_written_and_empty_ones_left_out() -> None:
    reader, writer = pipe()
    parts = [b"", *(bytes([number % 256]) * (number % 3) for number in range(5000)), b""]
    write_all(writer, parts)
    writer.close()
    written = b"".join(parts)
    assert read_exactly(reader, len(written)) == written
    with pytest.raises(EndOfStreamError):
        read_exactly(reader, 1)


def test_only_as_many_credits_can_be_taken_as_there_are() -> None:
    queue_credits = Credits(3)
    for _ in range(3):
        queue_credits.take()
    os.set_blocking(queue_credits._reader.fileno(), False)
    with pytest.raises(BlockingIOError):
        queue_credits.take()
    queue_credits.give(2)
    queue_credits.take()
    queue_credits.take()
    with pytest.raises(BlockingIOError):
        queue_credits.take()


def test_a_huge_number_of_credits_fits_into_the_pipe() -> None:
    queue_credits = Credits(10**9)
    queue_credits.take()
    queue_credits.give()


def test_closing_twice_closes_no_descriptor_of_others() -> None:
    reader, writer = pipe()
    number = writer.fileno()
    writer.close()
    other = Descriptor(os.dup(reader.fileno()))
    assert other.fileno() == number, "the number is used again"
    writer.close()
    os.fstat(other.fileno())


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_holds_no_pipe_open() -> None:
    reader, writer = pipe()
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    try:
        writer.close()
        assert os.read(reader.fileno(), 1) == b""
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
