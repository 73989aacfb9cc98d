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
ADAPTERS, TRAINING, FROM_FILES, COMPARE, COMPARE_IDS = BLOCKS
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
    size = f"{len(counts)} distinct pre-tokens, and in mine {len(counts)}"
    tuples = {tuple(bytes([byte]) for byte in token): occurs for token, occurs in counts.items()}
    texts = {token.decode(): occurs for token, occurs in counts.items()}
    numbers = {tuple(token): occurs for token, occurs in counts.items()}
    for mine in (counts, tuples, texts, numbers):
        compare(corpus, [END], 277, mine, [(list(left), list(right)) for left, right in merges])
        assert capsys.readouterr().out == f"{size}; 0 differ\n20 merges, and in mine 20\n"
    compare(corpus, [END], 277, counts + Counter([b"low"]), [*merges[:3], (b"x", b"y"), *merges[4:]])
    printed = capsys.readouterr().out
    assert re.findall("^pre-token (.*) occurs|^(merge 3) ", printed, re.MULTILINE) == [("b'low'", ""), ("", "merge 3")]


def test_the_comparison_shows_missing_merges_and_few_pretokens(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {token: 1000 - number for number, token in enumerate(map(str, range(100)))}
    names_of(COMPARE)["compare"](corpus, [END], 277, words, [])
    first, *pretokens, last = capsys.readouterr().out.splitlines()
    assert first.endswith(f"and in mine 100; {len(count(DOCUMENTS)) + 100} differ")
    assert [line.split()[1] for line in pretokens] == [f"b'{number}'" for number in range(10)]
    assert last == "20 merges, and in mine 0"


def test_the_comparison_of_ids_explains_the_first_that_differs(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = names_of(TRAINING.replace("10_000", "277"))["tokenizer"]
    compare_ids, text = names_of(COMPARE_IDS)["compare_ids"], "Héllò lowest" + END + "newest low"
    capsys.readouterr()
    ids = tokenizer.encode(text)
    compare_ids(tokenizer, text, ids)
    assert capsys.readouterr().out == f"{len(ids)} ids, and in mine {len(ids)}\n"
    at = ids.index(256) + 1
    compare_ids(tokenizer, text, [*ids[:at], ids[at] + 1, *ids[at + 1 :]])
    printed = capsys.readouterr().out
    assert f"id {at} at character {len('Héllò lowest' + END)} is {ids[at]} and in mine {ids[at] + 1}\n" in printed
    assert "'newest'" in printed
