"""The code blocks of docs/cs336.md run, and the adapters do what the assignment's tests ask of them."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import regex

from bpeflow.pretokenize.patterns import NAMED_PATTERNS

PAGE = (Path(__file__).parents[1] / "docs" / "cs336.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ADAPTERS, TRAINING, FROM_FILES, COMPARE = BLOCKS
END = "<|endoftext|>"
DOCUMENTS = ["low lower lowest", "newer\n\nwider newest", "Héllò hôw are ü? 🙃 aaaa abab", "low low"]


def names_of(block: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(block, "cs336.md", "exec"), names)
    return names


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("train.txt", "valid.txt"):
        (tmp_path / name).write_text(END.join(DOCUMENTS), encoding="utf-8")
    return tmp_path / "train.txt"


def count(documents: list[str]) -> Counter[bytes]:
    find = regex.compile(NAMED_PATTERNS["gpt2"]).findall
    return Counter(token.encode() for document in documents for token in find(document))


def merges_by_recounting(counts: Mapping[bytes, int], number: int) -> list[tuple[bytes, bytes]]:
    """Learn merges as the handout defines it."""
    words = [([bytes([byte]) for byte in token], occurs) for token, occurs in counts.items()]
    merges = []
    for _ in range(number):
        pairs: Counter[tuple[bytes, bytes]] = Counter()
        for word, occurs in words:
            for pair in pairwise(word):
                pairs[pair] += occurs
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        for word, _ in words:
            for at in range(len(word)):
                if (*word[at : at + 2],) == best:
                    word[at : at + 2] = [best[0] + best[1]]
    return merges


def test_the_adapters_have_the_interface_of_the_assignment(corpus: Path) -> None:
    adapters = names_of(ADAPTERS)
    vocab, merges = adapters["run_train_bpe"](input_path=corpus, vocab_size=277, special_tokens=[END])
    assert merges == merges_by_recounting(count(DOCUMENTS), 20)
    assert type(vocab) is dict
    assert set(vocab) == set(range(277))
    assert set(vocab.values()) == {*(bytes([b]) for b in range(256)), END.encode(), *(a + b for a, b in merges)}
    assert adapters["run_train_bpe"](str(corpus), 277, [END], num_counter=2) == (vocab, merges)
    tokenizer = adapters["get_tokenizer"](vocab, merges, [END, END + END])
    text = f"Hello, how {END}{END} are you?{END}"
    pieces = [tokenizer.decode([token_id]) for token_id in tokenizer.encode(text)]
    assert (pieces.count(END), pieces.count(END + END), "".join(pieces)) == (1, 1, text)
    with corpus.open(encoding="utf-8") as file:
        ids = list(tokenizer.encode_iterable(file))
    assert ids == tokenizer.encode(END.join(DOCUMENTS))
    assert adapters["get_tokenizer"](vocab, merges).special_tokens == {}


def test_the_experiments_run_and_their_pickles_are_read(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained = names_of(TRAINING.replace("10_000", "277"))
    assert "bytes per token" in capsys.readouterr().out
    assert trained["ids"].dtype == "uint16"
    assert trained["tokenizer"].decode(trained["ids"]).rstrip(END) == END.join(DOCUMENTS).rstrip(END)
    read = names_of(FROM_FILES.replace("10_000", "277"))["tokenizer"]
    assert pickle.loads(Path("vocab.pkl").read_bytes()) == trained["tokenizer"].vocab
    assert read == trained["tokenizer"].with_special_tokens(["<|pad|>"])


def test_the_comparison_finds_the_first_difference(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare, counts = names_of(COMPARE)["compare"], count(DOCUMENTS)
    merges = merges_by_recounting(counts, 20)
    compare(corpus, [END], 277, counts, merges)
    assert capsys.readouterr().out == ""
    compare(corpus, [END], 277, counts + Counter([b"low"]), [*merges[:3], (b"x", b"y"), *merges[4:]])
    assert re.findall("^(pre-token b'low'|merge 3) ", capsys.readouterr().out, re.MULTILINE) == [
        "pre-token b'low'", "merge 3",
    ]  # fmt: skip
