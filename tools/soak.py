"""Soak test: run many small trainings with random faults. Each must end with the right bytes or a clean error.

    python tools/soak.py --minutes 60
    python tools/soak.py --seed 7 --trial 123      repeat one trial

A trial draws a random corpus in random formats and random settings. A plain, undisturbed run gives the expected bytes;
for small corpora they are checked against the definition of byte-pair encoding. Then come runs that are killed or
limited, or whose files are changed. Each resumes the one before, until a run completes. Half of the trials then encode
the corpus in the same way. The seed and the number of a trial determine everything except the timing. The problems of
failed trials are printed, and their folders are kept. Exit status 1: a trial failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from soaking.process import end_all
from soaking.trial import Outcome, run_trial

#: Seconds between two progress lines.
INTERVAL = 30.0
#: Stop after this many failed trials: they are enough to investigate.
MAX_FAILED = 20


def main(arguments: list[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    folder = Path(options.folder or tempfile.mkdtemp(prefix="soak-")).resolve()
    print(f"seed {seed}, in {folder}", flush=True)
    started = time.monotonic()
    if options.trial is not None:
        outcomes = iter([run_trial(seed, options.trial, folder, keep=options.keep)])
    else:
        outcomes = run_trials(seed, folder, options.minutes * 60, options.jobs, options.trials)
    tally: Counter[str] = Counter()
    failed: list[Outcome] = []
    last_progress = started
    for outcome in outcomes:
        tally["trials"] += 1
        tally += outcome.tally
        if outcome.problems:
            failed.append(outcome)
            show_failure(seed, folder, outcome)
            if len(failed) >= MAX_FAILED:
                break
        if time.monotonic() - last_progress >= INTERVAL:
            last_progress = time.monotonic()
            print(progress(tally, len(failed), last_progress - started), flush=True)
    seconds = time.monotonic() - started
    show_summary(tally, failed, seconds)
    if options.json:
        options.json.write_text(json.dumps(report(seed, tally, failed, seconds), indent=2) + "\n", encoding="utf-8")
    if not failed and not options.keep and not any(folder.iterdir()):
        folder.rmdir()
    return int(bool(failed))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", metavar="N", type=float, default=10.0, help="how long to start new trials (10)")
    parser.add_argument("--seed", metavar="N", type=int, help="random seed (default: a new one, which is printed)")
    parser.add_argument("--trial", metavar="K", type=int, help="run only this trial of the seed")
    parser.add_argument("--trials", metavar="N", type=int, help="maximum number of trials")
    parser.add_argument("--jobs", metavar="N", type=int, default=2, help="trials to run in parallel (2)")
    parser.add_argument("--folder", metavar="PATH", type=Path, help="working folder (default: a new temporary folder)")
    parser.add_argument("--keep", action="store_true", help="keep the trial's folder even if it succeeds")
    parser.add_argument("--json", metavar="FILE", type=Path, help="file for the summary")
    return parser


def run_trials(seed: int, folder: Path, seconds: float, jobs: int, trials: int | None) -> Iterator[Outcome]:
    """Run trials in processes and yield their outcomes. No trial starts after `seconds`."""
    end = time.monotonic() + seconds
    numbers = count() if trials is None else iter(range(trials))
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        running: set[Future[Outcome]] = set()
        while True:
            while len(running) < jobs and time.monotonic() < end and (number := next(numbers, None)) is not None:
                running.add(pool.submit(run_trial, seed, number, folder))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def end_with_parent() -> None:
    """End this worker, with the processes of its trial, when the main process has ended, even if it was killed."""
    if (parent := parent_process()) is None:
        return

    def watch(parent: BaseProcess) -> None:
        parent.join()
        end_all()
        os._exit(1)

    threading.Thread(target=watch, args=(parent,), daemon=True).start()


def show_failure(seed: int, folder: Path, outcome: Outcome) -> None:
    print(f"FAILED: trial {outcome.number}: {'; '.join(outcome.problems)}")
    print(f"  to reproduce: python tools/soak.py --seed {seed} --trial {outcome.number}")
    print(f"  folder: {folder}/trial-{outcome.number} (log.txt has the commands and their messages)", flush=True)


def progress(tally: Counter[str], failed: int, seconds: float) -> str:
    kills = sum(number for name, number in tally.items() if name.startswith("trouble: kill"))
    endings = ", ".join(f"{name[7:]} {number}" for name, number in sorted(tally.items()) if name.startswith("ended: "))
    return (
        f"{seconds / 60:.1f} min: {tally['trials']} trials, {tally['runs']} runs, {kills} kills, "
        f"{tally['runs with --resume']} resumes; {endings}; failed trials {failed}"
    )


def show_summary(tally: Counter[str], failed: list[Outcome], seconds: float) -> None:
    print(f"\n{seconds / 60:.1f} minutes")
    for name, number in sorted(tally.items(), key=lambda item: item[0].partition(":")[0]):
        print(f"{number:8}  {name}")
    print(f"{len(failed):8}  failed trials")
    for outcome in failed:
        print(f"          trial {outcome.number}: {'; '.join(outcome.problems)}")


def report(seed: int, tally: Counter[str], failed: list[Outcome], seconds: float) -> dict[str, Any]:
    return {
        "seed": seed,
        "seconds": seconds,
        "tally": dict(sorted(tally.items())),
        "lost": [{"trial": outcome.number, "problems": outcome.problems} for outcome in failed],
    }


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        sys.exit(130)
