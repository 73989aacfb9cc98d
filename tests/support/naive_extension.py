"""Extending a tokenizer exactly as defined, as the oracle: encode with it, then recount after each new merge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from bpeflow._util.byte_level import BYTES_BY_CHARACTER, mergeable_bytes
from bpeflow.config import MergeSettings, Settings
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.tokenizer.python_encoder import PythonEncoder

Pieces = dict[bytes, list[bytes]]


@dataclass
class Extension:
    """The new merges with their counts, the number of new tokens, and the tokens of each word."""

    merges: list[tuple[bytes, bytes]]
    counts: list[int]
    new_tokens: int
    pieces: Pieces


def encode_words(spec: TokenizerSpec, words: dict[bytes, int]) -> Pieces:
    """Encode each word as one pre-token, to the bytes of its tokens."""
    whole = TokenizerSpec(spec.vocab, r"(?s).+", spec.whole_tokens)
    encoder, decoded = PythonEncoder(whole), spec.vocab.decoded_tokens
    return {word: [decoded[i] for i in encoder._encode_pretoken(word)] for word in words}


def naive_extension(
    base: TokenizerSpec, words: dict[bytes, int], settings: MergeSettings, new_tokens: int
) -> Extension:
    pieces = encode_words(base, words)
    huggingface = settings.tie_break == "huggingface"
    numbers = _numbers(base, settings)
    strings = {token for token in base.vocab.ordinary_tokens if token}
    if huggingface:
        strings |= {mergeable_bytes(t) for t in (*base.vocab.special_tokens, *settings.special_tokens)}
    found = Extension([], [], 0, pieces)
    while found.new_tokens < new_tokens:
        counts: Counter[tuple[bytes, bytes]] = Counter()
        for word, count in words.items():
            for pair in pairwise(pieces[word]):
                counts[pair] += count
        allowed = [p for p in counts if counts[p] >= settings.min_frequency and _allowed(p[0] + p[1], settings)]
        if not allowed:
            break
        if settings.tie_break == "greatest_bytes":
            best = max(allowed, key=lambda p: (counts[p], p))
        else:
            best = min(allowed, key=lambda p: (-counts[p], numbers[p[0]], numbers[p[1]]))
        found.merges.append(best)
        found.counts.append(counts[best])
        merged = best[0] + best[1]
        numbers.setdefault(merged, len(numbers) + 1_000_000)
        found.new_tokens += merged not in strings
        for word in words:
            pieces[word] = _merge(pieces[word], best)
    return found


def _allowed(token: bytes, settings: MergeSettings) -> bool:
    if len(token) > (settings.max_token_length or len(token)):
        return False
    if not (isinstance(settings, Settings) and settings.superwords):
        return True
    words = settings.max_words or len(token)
    return len(token.decode(errors="ignore").split()) <= words and not (settings.colon_rule and b": " in token)


def _numbers(base: TokenizerSpec, settings: MergeSettings) -> dict[bytes, int]:
    """Number all tokens as `smallest_ids` and `huggingface` do."""
    specials = sorted(base.vocab.special_tokens, key=base.vocab.special_tokens.__getitem__)
    specials += [token for token in settings.special_tokens if token not in specials]
    made = [left + right for left, right in base.vocab.merges]
    others = [token for token in base.vocab.ordinary_tokens if token and token not in made]
    if settings.tie_break == "huggingface":
        first = [*map(mergeable_bytes, specials), *(bytes([byte]) for byte in BYTES_BY_CHARACTER)]
    else:
        first = [bytes([byte]) for byte in range(256)]
    return {token: number for number, token in enumerate(dict.fromkeys([*first, *others, *made]))}


def _merge(pieces: list[bytes], pair: tuple[bytes, bytes]) -> list[bytes]:
    merged: list[bytes] = []
    i = 0
    while i < len(pieces):
        if tuple(pieces[i : i + 2]) == pair:
            merged.append(pieces[i] + pieces[i + 1])
            i += 2
        else:
            merged.append(pieces[i])
            i += 1
    return merged
