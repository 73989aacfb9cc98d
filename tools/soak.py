"""Let many small trainings meet with random trouble, and see that each ends with the right bytes or a clean error.

    python tools/soak.py --minutes 60
    python tools/soak.py --seed 7 --trial 123      that trial alone, again

A trial is a random corpus, in random forms, with random settings; the right bytes, from a plain unbroken run and, for
small ones, from the definition of byte-pair encoding; then runs that are killed, limited, or have their files
changed; each goes on with the last one's work until one comes to its end. Half of the trials then encode, likewise.
All but the moments at which things happen follows from the seed and the trial's number. What is lost is written out,
and its folder stays. Exit status 1: something was lost.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from soaking.trial import Outcome, run_trial

#: Seconds between two lines of progress.
INTERVAL = 30.0
#: When so many are lost there is enough to look into.
MOST_LOST = 20


def main(arguments: list[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    folder = Path(options.folder or tempfile.mkdtemp(prefix="soak-")).resolve()
    print(f"seed {seed}, in {folder}", flush=True)
    began = time.monotonic()
    if options.trial is not None:
        outcomes = iter([run_trial(seed, options.trial, folder, keep=options.keep)])
    else:
        outcomes = run_trials(seed, folder, options.minutes * 60, options.jobs, options.trials)
    tally: Counter[str] = Counter()
    lost: list[Outcome] = []
    shown = began
    for outcome in outcomes:
        tally["trials"] += 1
        tally += outcome.tally
        if outcome.problems:
            lost.append(outcome)
            show_lost(seed, folder, outcome)
            if len(lost) >= MOST_LOST:
                break
        if time.monotonic() - shown >= INTERVAL:
            shown = time.monotonic()
            print(progress(tally, len(lost), shown - began), flush=True)
    seconds = time.monotonic() - began
    show_summary(tally, lost, seconds)
    if options.json:
        options.json.write_text(json.dumps(report(seed, tally, lost, seconds), indent=2) + "\n", encoding="utf-8")
    if not lost and not options.keep and not any(folder.iterdir()):
        folder.rmdir()
    return int(bool(lost))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", metavar="N", type=float, default=10.0, help="how long trials are begun (10)")
    parser.add_argument(
        "--seed", metavar="N", type=int, help="what all is drawn from (default: a new one, which is told)"
    )
    parser.add_argument("--trial", metavar="K", type=int, help="run this trial of the seed alone")
    parser.add_argument("--trials", metavar="N", type=int, help="so many trials at most")
    parser.add_argument("--jobs", metavar="N", type=int, default=2, help="trials at the same time (2)")
    parser.add_argument("--folder", metavar="PATH", type=Path, help="where to work (default: a new temporary folder)")
    parser.add_argument("--keep", action="store_true", help="keep the folder of the trial, even if nothing is lost")
    parser.add_argument("--json", metavar="FILE", type=Path, help="where to write the summary")
    return parser


def run_trials(seed: int, folder: Path, seconds: float, jobs: int, trials: int | None) -> Iterator[Outcome]:
    """Run trials in processes, begin no more when the time is over, and yield them as they end."""
    end = time.monotonic() + seconds
    numbers = count() if trials is None else iter(range(trials))
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: set[Future[Outcome]] = set()
        while True:
            while len(running) < jobs and time.monotonic() < end and (number := next(numbers, None)) is not None:
                running.add(pool.submit(run_trial, seed, number, folder))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def show_lost(seed: int, folder: Path, outcome: Outcome) -> None:
    print(f"LOST in trial {outcome.number}: {'; '.join(outcome.problems)}")
    print(f"  again: python tools/soak.py --seed {seed} --trial {outcome.number}")
    print(f"  folder: {folder}/trial-{outcome.number} (log.txt has the commands and what they said)", flush=True)


def progress(tally: Counter[str], lost: int, seconds: float) -> str:
    kills = sum(often for name, often in tally.items() if name.startswith("trouble: kill"))
    endings = ", ".join(f"{name[7:]} {often}" for name, often in sorted(tally.items()) if name.startswith("ended: "))
    return (
        f"{seconds / 60:.1f} min: {tally['trials']} trials, {tally['runs']} runs, {kills} kills, "
        f"{tally['runs with --resume']} resumes; {endings}; lost {lost}"
    )


def show_summary(tally: Counter[str], lost: list[Outcome], seconds: float) -> None:
    print(f"\n{seconds / 60:.1f} minutes")
    for name, often in sorted(tally.items(), key=lambda item: item[0].partition(":")[0]):
        print(f"{often:8}  {name}")
    print(f"{len(lost):8}  lost" + "".join(f"\n          trial {o.number}: {'; '.join(o.problems)}" for o in lost))


def report(seed: int, tally: Counter[str], lost: list[Outcome], seconds: float) -> dict[str, Any]:
    return {
        "seed": seed,
        "seconds": seconds,
        "tally": dict(sorted(tally.items())),
        "lost": [{"trial": outcome.number, "problems": outcome.problems} for outcome in lost],
    }


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        sys.exit(130)
