"""`bench.py count`: from files to pre-token counts, including the start of the process."""

from __future__ import annotations

from pathlib import Path

from benchmarks import ours
from benchmarks.contender import Contender, Job, Outcome, Subject, regex_of

PEERS = Path(__file__).parent / "peers" / "count.py"
GPT2 = frozenset({"gpt2"})
#: Two of the peers can count only as a part of training.
_NO_MERGES = "with vocab_size=1: counts and sets up, learns no merge, does not report its counts"


def _bpeflow(name: str, note: str, counters: int | None = None, in_regex: bool = False) -> Contender:
    def arguments(job: Job) -> list[str]:
        return ours.count_arguments(job, counters)

    environment = {"BPEFLOW_INSTRUCTIONS": "regex"} if in_regex else {}
    return Contender(name, arguments, note, read_outcome=_outcome_from_run, environment=environment)


def _outcome_from_run(out_dir: Path, stdout: str) -> Outcome:  # noqa: ARG001
    corpus = ours.read_report(out_dir)["corpus"]
    return {"distinct": corpus["distinct_pretokens"], "total": corpus["pretokens"]}


def _peer(name: str, package: str, note: str, patterns: frozenset[str] | None = GPT2) -> Contender:
    def arguments(job: Job) -> list[str]:
        return [str(PEERS), name, str(job.processes), str(regex_of(job.pattern)), *job.files]

    return Contender(name, arguments, note, package, patterns)


SUBJECT = Subject(
    "count",
    "files → pre-token counts",
    (
        _bpeflow("bpeflow", "`python -m bpeflow --skip_merge`; writes the counts and run.json to disk"),
        _bpeflow("bpeflow-1", "the same with one counter", counters=1),
        _bpeflow("bpeflow-regex", "the same with the regex module as the scanner", in_regex=True),
        _peer("gigatoken", "gigatoken", "pretokenized_counts; holds the whole text and the counts in memory"),
        _peer("gigabpe", "gigabpe", f"train_bpe, bytelevel, {_NO_MERGES}"),
        _peer("huggingface", "tokenizers", f"Tokenizer.train, ByteLevel, {_NO_MERGES}; reads line by line"),
        _peer("regex", "regex", "one process, a Counter over regex.finditer; holds the whole text in memory", None),
    ),
)
