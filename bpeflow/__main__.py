"""``python -m bpeflow``, and the command ``bpeflow``."""

import gc
import os
import sys

# numpy's linear algebra, which nothing here needs, would start a thread for each core, and they spin for a while.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# What is imported stays: looking through it for garbage, again and again while it grows, finds none.
gc.set_threshold(100_000)


def run() -> None:
    """Run the command line, and end the process."""
    try:
        from bpeflow.cli.exit import leave
        from bpeflow.cli.main import main

        leave(main())
    except KeyboardInterrupt:  # while the imports are still going on
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would disturb the end
        sys.exit(130)


if __name__ == "__main__":
    run()
