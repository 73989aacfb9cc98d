"""A trial: draw a corpus and settings, find the expected result, then run with random faults until a run completes."""

from __future__ import annotations

import shlex
import shutil
import signal
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import yaml

from soaking import troubles
from soaking.corpora import make_corpus
from soaking.encoding import Encoding
from soaking.expected import Expected, PlainRunError, files_of, plain_run, prove
from soaking.process import Ended, Process, end_all
from soaking.settings import draw_result_settings, draw_run_settings, draw_superwords
from soaking.troubles import SmallDisk, Trouble
from soaking.verdict import VerdictError, how_it_ended, problems_of_end, problems_of_folder

#: The largest number of runs with faults before the last, undisturbed run.
MAX_TROUBLES = 4


@dataclass
class Outcome:
    """The outcome of a trial.

    Attributes:
        number: the number of the trial.
        problems: why it failed; empty if it succeeded.
        tally: counts of events.
        seconds: wall time.
    """

    number: int
    problems: list[str] = field(default_factory=list)
    tally: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def run_trial(seed: int, number: int, folder: Path, keep: bool = False) -> Outcome:
    """Run a trial in its own folder, which is kept if the trial fails or with `keep`."""
    folder = folder / f"trial-{number}"
    folder.mkdir(parents=True)
    # A process that a shell starts in the background ignores Ctrl-C, and its children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    trial = Trial(seed, number, folder)
    started = time.monotonic()
    try:
        trial.run()
    except (VerdictError, PlainRunError) as error:
        trial.outcome.problems.append(str(error))
    except KeyboardInterrupt:
        end_all()
        raise
    except Exception as error:  # a defect of the soak itself is reported as such
        trial.outcome.problems.append(f"the soak itself failed: {type(error).__name__}: {error}")
        trial.note(traceback.format_exc())
    trial.outcome.seconds = time.monotonic() - started
    for problem in trial.outcome.problems:
        trial.note(f"FAILED: {problem}")
    if not trial.outcome.problems and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return trial.outcome


class Trial:
    """One trial. All random choices follow from the seed and the number; only the timing varies.

    Attributes:
        outcome: the outcome so far.
        seconds: the estimated time of a run, a moving average over completed runs.
    """

    seconds = 1.5

    def __init__(self, seed: int, number: int, folder: Path) -> None:
        self.outcome = Outcome(number)
        self._seed = f"{seed}/{number}"
        self._folder = folder
        self._run = folder / "run"
        self._scratch = folder / "scratch"
        self._scratch.mkdir()
        self._damaged: dict[str, bytes] = {}
        self._attempts = 0
        self._may_refuse = False

    def note(self, text: str) -> None:
        """Append to log.txt, which helps to investigate a failure."""
        with (self._folder / "log.txt").open("a", encoding="utf-8", errors="surrogateescape") as log:
            log.write(text + "\n")

    def run(self) -> None:
        """Run the trial.

        Raises:
            VerdictError: if a run ends neither with the right result nor with a clean error.
            PlainRunError: if the plain run contradicts the definition.
        """
        choose = Random(self._seed)
        self._settings = draw_result_settings(choose)
        scale = choose.choices((0, 2_000, 20_000, 200_000, 1_500_000), (1, 6, 6, 4, 1))[0]
        self._corpus = make_corpus(choose, self._folder / "corpus" / "in put é", self._settings, scale)
        if choose.random() < 0.1 and not self._settings["skip_merge"]:
            self._draw_init_from(choose)
        elif self._corpus.stdin is None:
            self._settings |= draw_superwords(choose, self._settings)
        plain = {**self._settings, **self._corpus.plain}
        self._expected = plain_run(plain, self._folder / "plain")
        result = self._expected.error or sorted(self._expected.files)
        self.note(f"expected: {result}; {self._corpus.size} bytes of input")
        self._expected = prove(self._expected, plain, self._corpus, self._folder / "plain")
        self.outcome.tally["results checked against the definition"] += self._expected.proved
        self._may_refuse = self._corpus.stdin is not None
        with ExitStack() as stack:
            disk = None
            if choose.random() < 0.08:
                disk = self._small_disk(choose, stack)
            elif choose.random() < 0.12:
                self._draw_previous(choose)
            for _ in range(choose.randrange(MAX_TROUBLES + 1)):
                if self._attempt(Random(f"{self._seed}/{self._attempts}"), disk):
                    break
            if disk is not None:
                disk.resize(200_000_000)
            self._finish(Random(f"{self._seed}/end"))
            if not self._expected.error and not self._settings["skip_merge"] and choose.random() < 0.5:
                Encoding(
                    self._seed, self._folder, self._run, self._corpus, self._settings, self.outcome.tally, self.note
                ).run()
            if self.outcome.problems and disk is not None:
                shutil.copytree(self._run, self._folder / "copy of run")

    # ---- before the first run ----

    def _draw_init_from(self, choose: Random) -> None:
        first = self._settings | {
            "vocab_sizes": [],
            "vocab_size": 256 + len(self._settings["special_tokens"]) + choose.randrange(5),
        }
        text = self._folder / "first.txt"
        text.write_text("lower lowest newer newest wider " * 3, encoding="utf-8")
        initial = plain_run({**first, "input": [str(text)], "max_token_length": None}, self._folder / "first")
        if initial.error:
            raise PlainRunError(f"cannot train the initial tokenizer: {initial.error}")
        (self._folder / "first" / "counts.npz").unlink()
        largest = [size + 10 for size in self._settings.get("vocab_sizes", [self._settings.get("vocab_size", 0)])]
        self._settings |= {"init_from": str(self._folder / "first")}
        self._settings |= {"vocab_sizes": largest} if "vocab_sizes" in self._settings else {"vocab_size": largest[0]}

    def _draw_previous(self, choose: Random) -> None:
        """Put the results of another, earlier run into the folder."""
        text = self._folder / "earlier.txt"
        text.write_text(" ".join(f"earlier{number}" for number in range(50)), encoding="utf-8")
        settings = {"input": [str(text)], "vocab_sizes": [257 + choose.randrange(9), 300]}
        plain_run({**settings, "output": {"formats": ["huggingface"]}}, self._run)
        self._may_refuse = True
        self.outcome.tally["folders with earlier results"] += 1

    def _small_disk(self, choose: Random, stack: ExitStack) -> SmallDisk | None:
        results = sum(map(len, self._expected.files.values())) + 10_000
        disk = stack.enter_context(
            troubles.small_disk(self._folder / "disk", int(results * choose.random() * 1.5) + 4096)
        )
        if disk is not None:
            self._run = self._folder / "disk" / "run"
        return disk

    # ---- runs ----

    def _attempt(self, choose: Random, disk: SmallDisk | None) -> bool:
        """Run with a fault. Return True if the run completed and the trial needs no further attempts."""
        trouble = Trouble("small disk", None, 0, 0) if disk else troubles.draw_trouble(choose)
        flags = self._flags(choose)
        accepted, changed, before = [self._expected], None, files_of(self._run)
        process = self._start(choose, flags, trouble)
        others: list[Process] = []
        troubles.inject(trouble, process, self._run, self.seconds)
        if trouble.kind == "change input" and self._corpus.stdin is None:
            changed = troubles.change(choose, self._corpus.paths)
            self.note(f"changed: {changed[0]}")
        elif trouble.kind == "second run":
            others.append(self._start(choose, self._flags(choose), Trouble("none", None, 0, 0)))
        ended = [running.wait() for running in (process, *others)]
        if changed is not None:
            accepted.append(
                plain_run({**self._settings, **self._corpus.plain}, self._folder / f"changed{self._attempts}")
            )
        for end in ended:
            self._judge(end, trouble, before, accepted if end is ended[-1] or end.status == 0 else None)
        if changed is not None:
            troubles.restore(*changed)
            self._may_refuse = True  # it may have counted the other contents
            return False
        done = any(end.status == 0 for end in ended)
        if not done:
            self._sometimes_damage(choose)
        return done and choose.random() < 0.8

    def _finish(self, choose: Random) -> None:
        """Run without faults. The run must complete."""
        none = Trouble("none", None, 0, 0)
        flags = ["--restart"] if choose.random() < 0.15 else ["--resume"]
        before = files_of(self._run)
        ended = self._start(choose, flags, none).wait()
        self._judge(ended, none, before, [self._expected])
        if ended.status == 2 and not self._expected.error and self._may_refuse:
            self.outcome.tally["refused to resume"] += 1
            before = files_of(self._run)
            ended = self._start(choose, ["--restart"], none).wait()
            self._judge(ended, none, before, [self._expected])
        if self._expected.error and ended.status != 2:
            raise VerdictError(f"exit status {ended.status}, but must be refused: {self._expected.error}")
        if not self._expected.error and ended.status != 0:
            raise VerdictError(f"failed without any trouble: {ended.stderr.strip()[-300:]}")
        self.outcome.tally["ended with the right bytes" if ended.status == 0 else "ended with the right error"] += 1

    def _flags(self, choose: Random) -> list[str]:
        first, later = (6, 3, 1), (2, 10, 1)
        return choose.choices(([], ["--resume"], ["--restart"]), later if self._attempts else first)[0]

    def _start(self, choose: Random, flags: list[str], trouble: Trouble) -> Process:
        self._attempts += 1
        free = draw_run_settings(choose, self._corpus.size, str(self._scratch))
        config = self._folder / f"config{self._attempts}.yaml"
        values = {**self._settings, **self._corpus.settings, **free, "out_dir": str(self._run), "overwrite": True}
        config.write_text(yaml.safe_dump(values), encoding="utf-8")
        arguments = ["--config", str(config), *flags]
        impatient = choose.random() < 0.5
        self.note(f"{self._attempts}: {trouble}, impatient={impatient}: bpeflow {shlex.join(arguments)}")
        self.outcome.tally["runs"] += 1
        self.outcome.tally[f"trouble: {trouble.kind}"] += 1
        self.outcome.tally["runs with " + (flags[0] if flags else "neither --resume nor --restart")] += 1
        return Process(arguments, self._folder, self._corpus.stdin, troubles.limits_of(trouble), impatient)

    def _judge(self, ended: Ended, trouble: Trouble, before: dict[str, bytes], accepted: list[Expected] | None) -> None:
        self.note(f"   status {ended.status} in {ended.seconds:.2f} s, sent {[s.name for s in ended.signals]}")
        self.note("   " + ended.stderr.strip().replace("\n", "\n   "))
        problems = problems_of_end(ended)
        if accepted is not None and not problems:
            problems = problems_of_folder(self._run, ended, accepted, before, self._damaged, self._scratch)
        if problems:
            raise VerdictError(f"{trouble.kind}: {'; '.join(problems[:5])}")
        self._count(ended)

    def _count(self, ended: Ended) -> None:
        if ended.status == 0:
            Trial.seconds = 0.8 * Trial.seconds + 0.2 * ended.seconds
        self.outcome.tally[f"ended: {how_it_ended(ended)}"] += 1

    def _sometimes_damage(self, choose: Random) -> None:
        if choose.random() < 0.4 and (name := troubles.damage(choose, self._run)):
            self.note(f"   damaged: {name}")
            self.outcome.tally["files damaged"] += 1
            self._may_refuse = True
            damaged = {key: data for key, data in files_of(self._run).items() if key == name}
            self._damaged |= {key.removeprefix("unfinished/"): data for key, data in damaged.items()}
