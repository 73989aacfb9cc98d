"""`Observer`: the one protocol of progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bpeflow.flow import MonitorSample


class Observer:
    """Progress callbacks. The base class ignores them; override those you want.

    Totals are None where they are unknown, as for standard input. Callbacks run on the calling process, some of them
    on another thread, and should return quickly.

    Attributes:
        sample_interval: seconds between two calls of `monitored`, unless the setting `monitor.interval` is given.

    >>> class Dots(Observer):
    ...     def learning(self, learned, wanted):
    ...         print(f"{learned} of {wanted}")
    >>> from bpeflow import learn_merges
    >>> merges = learn_merges({"low": 5, "lower": 2}, vocab_size=259, observer=Dots())
    0 of 3
    3 of 3
    """

    sample_interval: float = 10.0

    def counting(self, counted_bytes: int, total_bytes: int | None) -> None:
        """Report bytes of input counted so far."""

    def learning(self, learned: int, wanted: int) -> None:
        """Report merges learned so far."""

    def merged(self, merges: int, left: bytes, right: bytes, count: int) -> None:
        """Report the newest of the merges learned so far and its count, about ten times per second."""

    def encoding(self, encoded_bytes: int, total_bytes: int | None) -> None:
        """Report bytes of input encoded so far."""

    def decoding(self, decoded_bytes: int, total_bytes: int | None) -> None:
        """Report bytes of a token file decoded so far."""

    def working(self, sample: MonitorSample) -> None:
        """Receive the state of the counting pipeline twice per second: queues, rates and busy workers.

        The gauge of the counters is the number of distinct pre-tokens found so far by one of them. What each
        process uses is left out; `monitored` has it.
        """

    def monitored(self, sample: MonitorSample) -> None:
        """Receive a sample of the queue monitor (`monitor.enabled`)."""
