"""How many random examples tests try."""

from __future__ import annotations

import os

#: Of the random examples one in this many is tried. Sanitizers are several times slower.
ONE_IN = int(os.environ.get("BPEFLOW_EXAMPLES_ONE_IN", "1"))


def one_in(examples: int) -> int:
    """Return how many of this number of random examples to try: at least one."""
    return max(examples // ONE_IN, 1)
