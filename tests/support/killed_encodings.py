"""Script: encode over an earlier encoding, and kill it at its file operations, up to seven operations later each time.

`test_crash_encode_kills` runs this script in a process of its own (see `killed_runs`). After each kill, whoever finds
the first token file finds all files of the earlier encoding or all of the new one. Encoding again gives the same bytes
as an encoding that was never killed, and leaves nothing else.
"""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import signal
import sys
import traceback
from itertools import accumulate, count
from pathlib import Path
from typing import Any

from killed_runs import kill_at

import bpeflow
from bpeflow.dataset import journal


def encode(
    tokenizer: bpeflow.Tokenizer,
    source: str,
    out: Path,
    options: dict[str, Any],
    last_step: int | None,
    resume: bool = False,
) -> bool:
    """Encode in a child that is killed at `last_step`. Return whether it was killed. Each chunk has a checkpoint."""
    if (child := os.fork()) == 0:
        status = 3
        try:
            os.fsync = lambda descriptor: None
            if last_step is not None:
                kill_at(last_step, str(out.parent))
            journal.INTERVAL = 0
            work = {"num_threads": 2, "chunk_size": 20_000, "overwrite": True, "resume": resume}
            tokenizer.encode_file(source, out, **work, **options)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status
    return status != 0


def files(folder: Path) -> dict[str, str]:
    """Return the contents of all files but temporary ones."""
    return {path.name: path.read_bytes().hex() for path in sorted(folder.iterdir()) if path.name[0] != "."}


def main() -> None:
    work = json.loads(sys.argv[1])
    folder, choose = Path(work["folder"]), random.Random(work["seed"])
    tokenizer = bpeflow.Tokenizer.load(work["tokenizer"])
    name = "c.npy" if work["options"].get("format") == "npy" else "c.bin"
    earlier, unbroken = folder / "earlier", folder / "unbroken"
    earlier.mkdir()
    (folder / "warm").mkdir()
    tokenizer.encode_file(work["earlier"], folder / "warm" / name, num_threads=1)  # no child has to import modules
    gc.freeze()  # a collection in a child would copy the memory that it shares
    encode(tokenizer, work["earlier"], earlier / name, work["earlier_options"], None)
    shutil.copytree(earlier, unbroken)
    assert not encode(tokenizer, work["input"], unbroken / name, work["options"], None)
    old, new = files(earlier), files(unbroken)
    (folder / "alone").mkdir()
    encode(tokenizer, work["input"], folder / "alone" / name, work["options"], None)
    sidecars = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("alone/*.json")]
    [first] = {facts.get("set", {}).get("first", name) for facts in sidecars}
    kills = kept = published = resumed = 0
    for step in accumulate(choose.randint(1, 7) for _ in count()):
        out = Path(shutil.copytree(earlier, folder / "killed"))
        killed = encode(tokenizer, work["input"], out / name, work["options"], step)
        found = files(out)
        if first in found and first in old:
            assert found in (old, new), (step, sorted(found))
            kept, published = kept + (found == old), published + (found == new)
        kills += killed
        resume = choose.random() < 0.8
        for again in [*(choose.randrange(1, 60) for _ in range(choose.randrange(3))), None]:
            resumed += resume and any(out.glob(".*.ckpt.*"))
            killed_again = encode(tokenizer, work["input"], out / name, work["options"], again, resume)
        assert not killed_again
        assert files(out) == new, step
        assert {path.name for path in out.iterdir()} == {*new}, (step, os.listdir(out))  # noqa: PTH208
        shutil.rmtree(out)
        if not killed:
            break
    sys.stdout.write(json.dumps({"kills": kills, "kept": kept, "published": published, "resumed": resumed}))


if __name__ == "__main__":
    main()
