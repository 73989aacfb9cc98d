"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a path to write to, which takes the place of `path` when the block ends well.

    The temporary file stands beside its target, so that the final rename stays within one file system and is atomic;
    it is flushed to the disk first, so that the name never outlives the content. When the block raises, the temporary
    file is removed and whatever stood at `path` before still stands there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            raise OSError(error.errno, error.strerror, str(path)) from error  # name what the caller asked for
        raise
