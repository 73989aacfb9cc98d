"""Entry point of ``python -m bpeflow`` and of the command ``bpeflow``."""

import gc
import os
import sys

# numpy's linear algebra library is not used here, but would start one thread per core, and these spin for a while.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Plugins of pydantic, which bpeflow has none of, are looked for in every installed distribution.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
# Imported modules are never garbage, so frequent collections while they are imported would only cost time.
gc.set_threshold(100_000)


def run() -> None:
    """Run the command line and exit the process."""
    try:
        from bpeflow.cli.exit import leave
        from bpeflow.cli.main import main

        try:
            status = main()
        except SystemExit as end:  # of the parser of arguments
            status = end.code if isinstance(end.code, int) else 0
        leave(status)
    except KeyboardInterrupt:  # during the imports
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not disturb the exit
        sys.exit(130)


if __name__ == "__main__":
    run()
