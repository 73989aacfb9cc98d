"""Several texts, or several sequences of ids, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from bpeflow.errors import InputTypeError, InvalidTextError, SpecialTokenError, UnknownTokenError

Item = TypeVar("Item")
Result = TypeVar("Result")


def for_each(work: Callable[[Item], Result], batch: Iterable[Item]) -> list[Result]:
    """Do `work` for each item of a batch; its errors are raised with the item's place in front.

    Raises `InputTypeError` for what is no batch; a `str` is none: one text where several belong.
    """
    if isinstance(batch, str) or not isinstance(batch, Iterable):
        raise InputTypeError(f"a batch is a list, not {type(batch).__name__}; one alone is for encode, or decode")
    done: list[Result] = []
    try:
        for item in batch:
            done.append(work(item))  # noqa: PERF401  # how many there are tells where it failed
    except (InputTypeError, InvalidTextError, SpecialTokenError, UnknownTokenError) as error:
        raise type(error)(f"at index {len(done)} of the batch: {error}") from None
    return done
