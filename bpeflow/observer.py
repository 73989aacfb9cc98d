"""`Observer`: who is told how far a run has come."""

from __future__ import annotations

from bpeflow.flow import Sample


class Observer:
    """Is told how far a run has come. This one listens to nothing; the command line has those that speak."""

    def counting(self, counted_bytes: int, total_bytes: int | None) -> None:
        """Counting goes on: so many bytes of so many, or of None: of standard input, say, nobody knows the size."""

    def merging(self, learned: int, wanted: int) -> None:
        """Learning goes on: so many merges of so many."""

    def encoding(self, encoded_bytes: int, total_bytes: int | None) -> None:
        """Encoding goes on: so many bytes of text of so many, likewise."""

    def decoding(self, decoded_bytes: int, total_bytes: int | None) -> None:
        """Decoding goes on: so many bytes of a token file of so many, likewise."""

    def monitored(self, sample: Sample) -> None:
        """The queue monitor has taken a sample."""
