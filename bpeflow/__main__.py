"""``python -m bpeflow``."""

import sys

if __name__ == "__main__":
    try:
        from bpeflow.cli import main

        sys.exit(main())
    except KeyboardInterrupt:  # while the imports are still going on
        sys.exit(130)
