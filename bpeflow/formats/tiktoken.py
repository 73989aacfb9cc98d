"""tiktoken's form: a line for each token, its bytes in base64 and its rank, which is its id.

The file knows neither special tokens nor the split pattern. They are in a JSON file beside it, `about_path`, that holds
what ``tiktoken.Encoding`` takes besides the ranks::

    about = json.loads(Path("tokenizer.tiktoken.json").read_text())
    tiktoken.Encoding(**about, mergeable_ranks=load_tiktoken_bpe("tokenizer.tiktoken"))

The files that OpenAI publishes need none: they are known by their content. Source: tiktoken 0.14, ``tiktoken/load.py``
and ``tiktoken_ext/openai_public.py``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import itertools
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpeflow._util.atomic import atomic_path
from bpeflow.errors import FormatError
from bpeflow.formats.ranks import first_difference, recover_merges
from bpeflow.formats.regex_dialects import check_pattern, named, refuse_differences, spelled
from bpeflow.formats.spec import TokenizerSpec
from bpeflow.formats.untrusted import (
    check_bytes,
    check_special_tokens,
    is_text,
    place_tokens,
    read_bytes,
    read_json,
    shown,
)
from bpeflow.vocab import Vocab

FILE = "tokenizer.tiktoken"
SUFFIX = ".tiktoken"

#: The arguments of ``tiktoken.Encoding`` that the file beside the ranks may hold.
_ABOUT = ("name", "pat_str", "special_tokens", "explicit_n_vocab")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Published:
    pattern: str
    special_tokens: dict[str, int]


_FIM = {"<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260}

#: By the SHA-256 of the file, since any file can have any name. r50k_base, cl100k_base and o200k_base.
_PUBLISHED = {
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": _Published("gpt2", {"<|endoftext|>": 50256}),
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": _Published(
        "cl100k", {"<|endoftext|>": 100257, **_FIM, "<|endofprompt|>": 100276}
    ),
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": _Published(
        "o200k", {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}
    ),
}


def about_path(path: Path) -> Path:
    """The JSON file with special tokens and pattern: ``x.tiktoken`` has ``x.tiktoken.json``."""
    return path.with_name(path.name + ".json")


def load(path: Path) -> TokenizerSpec:
    """Read ranks and, from the file beside them, special tokens and pattern; the merges are recovered from the ranks.

    Raises `FormatError`, with file and place, for anything that does not fit.
    """
    content = read_bytes(path)
    ranks = _read_ranks(path, content)
    check_bytes(path, ranks)
    about = _read_about(path, content)
    specials = [(token_id, text.encode()) for text, token_id in about.special_tokens.items()]
    ids_of_ranks = {rank: token for token, rank in ranks.items()}
    apart = [(i, token) for i, token in specials if ids_of_ranks.get(i) != token]
    tokens = place_tokens(path, [*ids_of_ranks.items(), *apart])
    vocab = Vocab(tokens, about.special_tokens, tuple(recover_merges(ranks)))
    return TokenizerSpec(vocab, about.pattern, whole_tokens=True)


def save(spec: TokenizerSpec, path: Path) -> list[Path]:
    """Write ranks and the file beside them, and return their paths.

    Raises `FormatError`, before anything is written, where ranks alone would be merged differently, where two ids have
    the same bytes, and for a pattern that tiktoken's engine reads differently.
    """
    vocab = spec.vocab
    ordinary = vocab.ordinary_tokens
    ranks = {token: token_id for token_id, token in enumerate(ordinary) if token}
    _check_ids(vocab, ordinary, path)
    if difference := first_difference(ranks, vocab.merges, spec.whole_tokens):
        raise FormatError(
            f"{path}: tiktoken has no list of merges, only ranks, and would merge differently: {difference}. "
            "Use another format"
        )
    _warn_of_prefixes(vocab, path)
    about: dict[str, Any] = {
        "name": path.name.removesuffix(SUFFIX),
        "pat_str": spelled(spec.pattern, "fancy-regex", path),
        "special_tokens": vocab.special_tokens,
    }
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.writelines(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items())
    with atomic_path(about_path(path)) as temporary:
        temporary.write_text(json.dumps(about, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return [path, about_path(path)]


def looks_like_ranks(path: Path) -> bool:
    """Whether a file begins as tiktoken's do, whatever its name: Llama 3's is called ``tokenizer.model``."""
    try:
        with path.open("rb") as file:
            line = file.readline(4096)
    except OSError:
        return False
    parts = line.split()
    if len(parts) != 2 or not parts[1].isdigit():
        return False
    try:
        return bool(base64.b64decode(parts[0], validate=True))
    except binascii.Error:
        return False


def _warn_of_prefixes(vocab: Vocab, path: Path) -> None:
    """Warn of special tokens of which one begins another: in tiktoken either may be taken, here it is the longer."""
    specials = sorted(vocab.special_tokens)
    for text, following in itertools.pairwise(specials):
        if following.startswith(text):  # what begins with a text follows it in this order
            log.warning(
                "%s: special token %r begins %r: tiktoken takes the one or the other, bpeflow the longer",
                path,
                text,
                following,
            )


def _check_ids(vocab: Vocab, ordinary: tuple[bytes, ...], path: Path) -> None:
    specials = {token_id: token for token, token_id in vocab.special_tokens.items()}
    for token_id, token in enumerate(vocab.tokens):
        if token and token_id not in specials and not ordinary[token_id]:
            raise FormatError(f"{path}: tiktoken has one id for each string, and {token!r} (id {token_id}) has two")
        if token_id in specials and ordinary[token_id] not in (b"", token):
            raise FormatError(
                f"{path}: special token {specials[token_id]!r} shares id {token_id} with {ordinary[token_id]!r}; "
                "in tiktoken an id stands for one string"
            )


def _read_ranks(path: Path, content: bytes) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    lines: dict[int, int] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if not line:
            continue
        parts = line.split()
        if len(parts) != 2 or not parts[1].isdigit() or len(parts[1]) > 10:
            raise FormatError(f"{path}, line {number}: need a token in base64 and its rank, found {shown(line)}")
        try:
            token = base64.b64decode(parts[0], validate=True)
        except binascii.Error as error:
            raise FormatError(f"{path}, line {number}: {shown(parts[0])} is not base64: {error}") from error
        rank = int(parts[1])
        if not token:
            raise FormatError(f"{path}, line {number}: an empty token")
        if token in ranks:
            raise FormatError(
                f"{path}, line {number}: token {shown(token)} has rank {ranks[token]} already, from line "
                f"{lines[ranks[token]]}"
            )
        if rank in lines:
            raise FormatError(f"{path}, line {number}: rank {rank} stands in line {lines[rank]} already")
        ranks[token] = rank
        lines[rank] = number
    return ranks


def _read_about(path: Path, content: bytes) -> _Published:
    beside = about_path(path)
    if not beside.exists():
        published = _PUBLISHED.get(hashlib.sha256(content).hexdigest())
        if published is None:
            raise FormatError(
                f"{path}: not one of the published files that are known, so its special tokens and split pattern are "
                f'needed: write {{"pat_str": "...", "special_tokens": {{"<|endoftext|>": 50256}}}} into {beside}'
            )
        return published
    about = read_json(beside)
    if unknown := [key for key in about if key not in _ABOUT]:
        raise FormatError(f"{beside}: unknown key {shown(unknown[0])}; known are {', '.join(_ABOUT)}")
    regex = about.get("pat_str")
    if not regex or not isinstance(regex, str) or not is_text(regex):
        raise FormatError(f"{beside}: pat_str must be a regular expression, found {shown(regex)}")
    pattern = check_pattern(named(regex), beside)
    if pattern == regex:
        refuse_differences(pattern, "fancy-regex", beside)
    return _Published(pattern, check_special_tokens(beside, about.get("special_tokens", {})))
