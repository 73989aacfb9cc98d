"""Stage functions for the tests. Child processes can import this module, but not the test modules."""

import ctypes
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bpeflow.flow import Executor, Pipeline, QueueSpec, Source, Stage, pipes, set_gauge

# ---- items


class Buffers:
    """Parts that are pickled out of band."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Buffers, tuple(pickle.PickleBuffer(part) for part in self.parts)


# ---- sources


def numbers(count: int) -> Iterator[int]:
    yield from range(count)


def numbers_named(name: str, count: int) -> Iterator[int]:
    """Like `numbers`; the name is pickled with the function."""
    yield from range(count)


def endless() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def nothing() -> Iterator[int]:
    return iter(())


def one_then_wait() -> Iterator[int]:
    yield 0
    time.sleep(1000)


def blobs(sizes: Iterable[int]) -> Iterator[bytes]:
    for size in sizes:
        yield bytes(size)


def pickled(items: bytes) -> Iterator[Any]:
    yield from pickle.loads(items)


# ---- stages


def pass_on(items: Iterator[Any]) -> Iterator[Any]:
    yield from items


def show_gauge_and_work(items: Iterator[int]) -> Iterator[int]:
    for item in items:
        set_gauge(100 + item)
        time.sleep(0.15)
        yield item


def square(items: Iterator[int]) -> Iterator[int]:
    for item in items:
        yield item * item


def total(items: Iterator[int]) -> Iterator[int]:
    yield sum(items)


def collect(items: Iterator[int]) -> Iterator[list[int]]:
    yield list(items)


def swallow(items: Iterator[Any]) -> Iterator[Any]:
    for _ in items:
        pass
    yield from ()


def yield_and_change(items: Iterator[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    for item in items:
        batch.append(item)
        yield batch


def map_each(function: Callable[[Any], Any], items: Iterator[Any]) -> Iterator[Any]:
    yield from map(function, items)


def take_only_one(items: Iterator[Any]) -> Iterator[Any]:
    yield next(items)


def sleep_forever(items: Iterator[Any]) -> Iterator[Any]:
    time.sleep(1000)
    yield from items


def spin_forever(items: Iterator[Any]) -> Iterator[Any]:
    while True:
        pass
    yield from items


def one_then(hang: Callable[[Iterator[Any]], Iterator[Any]], items: Iterator[Any]) -> Iterator[Any]:
    yield next(items)
    yield from hang(items)


def hold_the_interpreter(items: Iterator[Any]) -> Iterator[Any]:
    """Sleep in native code that lets no other thread run."""
    ctypes.PyDLL(None).sleep(1000)
    yield from items


def one_then_hang(even: Callable[..., Any], odd: Callable[..., Any], items: Iterator[int]) -> Iterator[int]:
    item = next(items)
    yield item
    yield from (odd if item % 2 else even)(items)


def last_exit_is_slow(items: Iterator[int]) -> Iterator[int]:
    """Of two workers, let the one that sees the number 0 flush and exit long after the other."""
    seen = []
    for item in items:
        seen.append(item)
        yield item
    if 0 in seen:
        time.sleep(0.5)
        yield -1


def leave_a_process(items: Iterator[Any]) -> Iterator[Any]:
    os.system("sleep 1000 &")
    yield from items


def hold_until_exists(path: Path, items: Iterator[Any]) -> Iterator[Any]:
    for item in items:
        while not path.exists():
            time.sleep(0.01)
        yield item


def check_main_script(items: Iterator[Any]) -> Iterator[tuple[int, bool]]:
    """Yield this process id, and whether the process has imported its parent's main script."""
    for _ in items:
        pass
    yield os.getpid(), "w" in vars(sys.modules["__main__"])


def describe_process(items: Iterator[Any]) -> Iterator[tuple[str, str | None, str | None, int]]:
    """Yield the working directory, two variables of the environment, and the process id of the parent."""
    for _ in items:
        yield os.getcwd(), os.environ.get("ADDED"), os.environ.get("REMOVED"), os.getppid()  # noqa: PTH109


def identity(item: int) -> int:
    return item


def sleep_a_little(item: int) -> int:
    time.sleep(0.02)
    return item


def weigh_ten(item: Any) -> int:
    return 10


# ---- failures: each at the third item, so that the run is in full swing


class UnloadableError(Exception):
    """Can be pickled, but not loaded: its __init__ has more parameters than its args."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


class UnpicklableError(Exception):
    """Cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.callback = lambda: text


def _raise() -> None:
    raise ValueError("the third item is bad")


def _raise_eof() -> None:
    raise EOFError("as if a file had ended")


def _raise_unloadable() -> None:
    raise UnloadableError("unloadable", " error")


def _raise_unpicklable() -> None:
    raise UnpicklableError("unpicklable error")


def _segfault() -> None:
    ctypes.string_at(0)


def _kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


FAILURES = {
    "raise": _raise,
    "raise eof": _raise_eof,
    "raise unloadable": _raise_unloadable,
    "raise unpicklable": _raise_unpicklable,
    "exit 0": lambda: os._exit(0),
    "exit 1": lambda: os._exit(1),
    "sys.exit 0": lambda: sys.exit(0),
    "sys.exit 3": lambda: sys.exit(3),
    "segfault": _segfault,
    "kill": _kill_self,
    "unpicklable": lambda: lambda: None,  # the item itself is a lambda
}


def fail(how: str, items: Iterable[Any]) -> Iterator[Any]:
    for number, item in enumerate(items):
        yield FAILURES[how]() if number == 2 else item


def raise_at_once(items: Iterator[Any]) -> Iterator[Any]:
    _raise()
    yield from items


def raise_large(items: Iterator[Any]) -> Iterator[Any]:
    raise ValueError("x" * 3_000_000)
    yield from items


def failing_source(how: str) -> Iterator[Any]:
    return fail(how, endless())


def kill_self_in_half_a_message(items: Iterator[Any]) -> Iterator[bytes]:
    """Die when the reader has half of a message, and is waiting for the other half."""

    def write_half(writer: Any, data: Any) -> None:
        os.write(writer.fileno(), data[:500])
        time.sleep(0.2)
        _kill_self()

    pipes.write_all = write_half  # type: ignore[assignment]
    for _ in items:
        yield bytes(1000)


def lose_first_item(items: Iterator[Any]) -> Iterator[Any]:
    """Do not write the first item to the pipe."""
    write_all = pipes.write_all
    pipes.write_all = lambda *_: None  # type: ignore[assignment]
    yield next(items)
    pipes.write_all = write_all  # type: ignore[assignment]
    yield from items


class UnloadableItem:
    """Can be pickled, but raises when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_raise_on_loading, ())


def _raise_on_loading() -> None:
    raise LookupError("this item cannot be loaded")


def unloadable(items: Iterator[Any]) -> Iterator[UnloadableItem]:
    for _ in items:
        yield UnloadableItem()


# ---- pipelines


def squares_of_five() -> list[int]:
    """Run a whole pipeline; for tests that call this in another process."""
    return sorted(simple_pipeline(partial(numbers, 5), square).run())


def squares_in(executor: Executor, count: int) -> list[int]:
    return sorted(simple_pipeline(partial(numbers, count), square).run(executor))


def simple_pipeline(source: Any, *functions: Any, workers: int = 2, max_items: int = 4, **options: Any) -> Pipeline:
    """Build a pipeline of these functions, each reading from a small queue."""
    stages = [
        Stage(f"stage {number}", function, QueueSpec(f"queue {number}", max_items), workers)
        for number, function in enumerate(functions)
    ]
    return Pipeline(Source("source", source), stages, QueueSpec("results", max_items), **options)
