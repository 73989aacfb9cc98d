"""`bench.py train`: from files to a vocabulary, including the start of the process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks import ours
from benchmarks.contender import Contender, Job, Outcome, Subject, regex_of

PEERS = Path(__file__).parent / "peers" / "train.py"
GPT2 = frozenset({"gpt2"})

#: gigabpe applies gpt2's pattern to each line separately, so no pre-token continues after a line end.
GPT2_BY_LINES = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|[^\S\n]*\n|[^\S\n]+(?!\S)|[^\S\n]+"


def _bpeflow(name: str, note: str, *settings: str, threads: int | None = None, on_request: bool = False) -> Contender:
    def arguments(job: Job) -> list[str]:
        return ours.train_arguments(job, [*settings, f"threads={threads or job.processes}"])

    return Contender(name, arguments, note, read_outcome=ours.learning_outcome, on_request=on_request)


def _superwords_outcome(out_dir: Path, stdout: str) -> Outcome:
    """Return the outcome under other names, as it differs from that of all others."""
    return {f"superwords' {key}": value for key, value in ours.learning_outcome(out_dir, stdout).items()}


def peer_arguments(name: str, job: Job, vocab_size: int) -> list[str]:
    """Return the arguments of the script that trains with a peer."""
    pattern = "gpt2" if job.pattern == "gpt2" else str(regex_of(job.pattern))
    target = str(job.out_dir / ours.MERGES_FILE) if job.write_merges else "-"
    return [str(PEERS), name, str(job.processes), str(vocab_size), pattern, target, *job.files]


def _peer(name: str, package: str, note: str, twin: Contender, patterns: frozenset[str] | None = GPT2) -> Contender:
    def arguments(job: Job) -> list[str]:
        return peer_arguments(name, job, job.vocab_size)

    return Contender(name, arguments, note, package, patterns, twin=twin)


_AS_HUGGINGFACE = _bpeflow("bpeflow with tie_break=huggingface", "", "tie_break=huggingface")
_AS_RUSTBPE = _bpeflow("bpeflow with tie_break=smallest_ids", "", "tie_break=smallest_ids")
_AS_GIGABPE = _bpeflow(
    "bpeflow with tie_break=huggingface, no special tokens, and a pattern that stops at line ends",
    "",
    *("tie_break=huggingface", "special_tokens=[]", ours.pattern_setting(GPT2_BY_LINES)),
)

SUBJECT = Subject(
    "train",
    "files → vocabulary",
    (
        _bpeflow(
            "bpeflow-omp",
            "`python -m bpeflow`, --processes threads; ties: greatest bytes; writes the vocabulary, the counts and "
            "run.json to disk",
            "backend=omp",
        ),
        _bpeflow("bpeflow-omp-1", "the same, learning with one thread", "backend=omp", threads=1),
        _bpeflow("bpeflow-c", "the same with backend c", "backend=c"),
        _bpeflow("bpeflow-python", "the same with backend python", "backend=python", on_request=True),
        replace(
            _bpeflow(
                "bpeflow-superwords", "the same with --superwords", "backend=omp", "superwords=true", on_request=True
            ),
            read_outcome=_superwords_outcome,
        ),
        _peer(
            "gigabpe",
            "gigabpe",
            "train_bpe, bytelevel; ties as HuggingFace; reads line by line, also learns from the separators, and "
            "learns one more merge for each byte that does not occur",
            _AS_GIGABPE,
        ),
        _peer(
            "gigatoken",
            "gigatoken",
            "train_bpe with a TextFileSource, tie_breaking='huggingface'",
            _AS_HUGGINGFACE,
        ),
        _peer(
            "rustbpe",
            "rustbpe",
            "train_from_iterator on documents, gpt2's pattern in its original form; ties: smallest ids; reports tokens "
            "instead of pairs, so tokens are compared",
            _AS_RUSTBPE,
            patterns=None,
        ),
        _peer(
            "huggingface",
            "tokenizers",
            "ByteLevel, BpeTrainer with all 256 bytes; train_from_iterator on documents, since Tokenizer.train reads "
            "line by line, which yields different pre-tokens",
            _AS_HUGGINGFACE,
            patterns=None,
        ),
    ),
    reference="bpeflow-omp",
    learns=True,
)
