"""Power cuts: files that a run has made durable survive, and the rest does no harm."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from distinct_words import write_corpus
from how_many import one_in
from power_cuts import Recorder, Tree, read_tree, write_tree

import bpeflow
from bpeflow.dataset import journal
from bpeflow.dataset.encode import encode_file
from bpeflow.dataset.journal import Journal
from bpeflow.dataset.token_file import index_path, read_sidecar
from bpeflow.dataset.token_writer import TokenSetWriter
from bpeflow.errors import FormatError
from bpeflow.formats.any_format import FORMATS
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.vocab import Vocab

TEXT = "the cat, the hat<|endoftext|>then that"
MERGES = [(b"t", b"h"), (b"th", b"e"), (b"a", b"t")]
OVER_ANOTHER = {"segment_size": "1gb", "overwrite": True}


def tokenizer(special_tokens_first: bool) -> bpeflow.Tokenizer:
    """Two tokenizers that give the same number of tokens for a text, but different ones."""
    vocab = Vocab.build(MERGES, ["<|endoftext|>"], special_tokens_first=special_tokens_first)
    return bpeflow.Tokenizer.from_spec(TokenizerSpec(vocab))


def states_of(
    disk: Path, work: Callable[[], object], promised: dict[str, int] | None = None
) -> Iterator[tuple[str, Tree, dict[str, int]]]:
    """Run it; yield each state of `disk` that a power cut may leave, and what was `promised` by then.

    That has "done" if the run was complete.
    """
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose, seen = random.Random(seed), set[frozenset[object]]()
    with Recorder(disk, promised={} if promised is None else promised) as recorder:
        work()
        recorder.promised["done"] = 1
    assert len(recorder.moments) > 5
    for moment in recorder.moments:
        for what, tree in moment.trees(choose, mixtures=20):
            if (key := frozenset([*tree.items(), *moment.promised.items()])) in seen:
                continue
            seen.add(key)
            yield f"before {moment.step}; {what}", tree, moment.promised


def placed(tree: Tree, place: Path) -> Path:
    """Make a folder a state of the disk."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    write_tree(tree, place)
    return place


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("options", "earlier", "killed_at"),
    [
        pytest.param({}, None, None, id="in a new folder"),
        pytest.param(OVER_ANOTHER, {"input": "earlier"}, None, id="over the results of another corpus"),
        pytest.param({"resume": True, "skip_merge": True}, {"resume": False}, 45, id="after a kill"),
        pytest.param({"superwords": True, "transition_size": 310}, None, None, id="superwords"),
        pytest.param(
            {**OVER_ANOTHER, "superwords": True},
            {"input": "earlier", "transition_size": 310},
            None,
            id="superwords over others",
        ),
    ],
)
def test_a_run_resumes_after_a_power_cut_at_any_moment(
    tmp_path: Path, options: dict[str, object], earlier: dict[str, object] | None, killed_at: int | None
) -> None:
    """24 of about 1,500 states of the disk; BPEFLOW_POWER_CUTS overrides the number."""
    seed, cuts = random.randrange(2**32), os.environ.get("BPEFLOW_POWER_CUTS", str(one_in(24)))
    corpus = write_corpus(tmp_path / "corpus")
    (write_corpus(tmp_path / "earlier") / "a").write_text("more words " * 50)
    settings = {
        "input": str(corpus), "vocab_sizes": [300, 330], "backend": "python", "num_counter": 1,
        "segment_size": "6kb", "chunk_size": "2kb", **options,
    }  # fmt: skip
    before = earlier and {"settings": earlier, "killed_at": killed_at}
    script = str(Path(__file__).parents[1] / "support" / "runs_after_cuts.py")
    done = subprocess.run(
        [sys.executable, script, json.dumps(settings), json.dumps(before), cuts, str(seed)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}: {done.stdout}{done.stderr[-3000:]}"
    outcome = json.loads(done.stdout)
    assert not outcome["wrong"], f"seed {seed}: {outcome['wrong'][:5]}"
    assert outcome["moments"] > 80
    assert outcome["cases"] >= min(int(cuts), 350)
    assert (outcome["refused"] > 0) == ("segment_size" in options)


def read_tokens(path: Path) -> object:
    """Return the text of a token file, or None if it is refused."""
    try:
        tokens, sidecar = bpeflow.load_tokens(path).tolist(), read_sidecar(path)
        offsets = bpeflow.load_document_offsets(path).tolist() if sidecar.index else index_path(path).exists()
        return sidecar.tokenizer_hash, tokens, offsets
    except (FormatError, FileNotFoundError):
        return None


@pytest.mark.parametrize("index", [False, True])
def test_a_token_file_is_the_earlier_one_or_the_new_one_or_refused(tmp_path: Path, index: bool) -> None:
    disk, text = tmp_path / "disk", tmp_path / "text"
    disk.mkdir()
    text.write_text(TEXT, encoding="utf-8")
    encode_file(tokenizer(False), text, disk / "train.bin", index=True)
    old = read_tokens(disk / "train.bin")

    def encode_again() -> None:
        encode_file(tokenizer(True), text, disk / "train.bin", index=index, overwrite=True)

    met: list[object] = []
    for what, tree, promised in states_of(disk, encode_again):
        new, found = read_tokens(disk / "train.bin"), read_tokens(placed(tree, tmp_path / "after") / "train.bin")
        assert found in ([new] if promised else [old, new, None]), what
        met.append(found)
    assert old in met and None not in (old, new)
    assert old != new


@pytest.mark.slow
def test_a_set_of_token_files_is_complete_where_its_first_file_is(tmp_path: Path) -> None:
    disk, text = tmp_path / "disk", tmp_path / "text"
    disk.mkdir()
    text.write_text(f"{TEXT}<|endoftext|>" * 2, encoding="utf-8")

    def encode(first: bool, shard_tokens: int, index: bool) -> None:
        options = {"shard_tokens": shard_tokens, "val_fraction": 0.3, "overwrite": True}
        encode_file(tokenizer(first), text, disk / "train.bin", index=index, **options)  # type: ignore[arg-type]

    def read_set(folder: Path) -> object:
        if not (folder / "train_000000.bin").exists():
            return None
        return [(path.name, read_tokens(path)) for path in sorted(folder.glob("*_00000?.bin"))]

    encode(first=False, shard_tokens=12, index=True)
    old, met = read_set(disk), []
    for what, tree, promised in states_of(disk, lambda: encode(first=True, shard_tokens=25, index=False)):
        new, found = read_set(disk), read_set(placed(tree, tmp_path / "after"))
        assert found in ([new] if promised else [old, new, None]), what
        met.append(found)
    assert old in met
    assert None in met
    assert old != new


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("c.bin", {}),
        ("c.bin", {"shard_tokens": 25, "val_fraction": 0.3, "index": True}),
        ("c.bin", {"format": "megatron"}),
        ("c.npy", {"shard_tokens": 40, "index": True}),
    ],
    ids=["plain", "parts of a split", "megatron", "npy in parts"],
)
@pytest.mark.parametrize("over", [False, True], ids=["in a new folder", "over an earlier one"])
def test_an_encoding_resumes_after_power_cuts(
    name: str, options: dict[str, Any], over: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk is a checkpoint, and what is encoded by then is not encoded again. A resumed one is cut, too."""
    text, whole, promised, begun = tmp_path / "text", tmp_path / "whole", dict[str, int](), list[int]()
    text.write_text(f"{TEXT}<|endoftext|>" * 3, encoding="utf-8")
    save, start = Journal.save, TokenSetWriter.__init__

    def record_promise(self: Journal, values: Mapping[str, Any]) -> None:
        save(self, values)
        promised["tokens"] = values.get("tokens", promised.get("tokens", 0))

    def record_start(self: TokenSetWriter, *arguments: Any) -> None:
        start(self, *arguments)
        begun.append(self.tokens)

    monkeypatch.setattr(journal, "INTERVAL", 0.0)
    monkeypatch.setattr(Journal, "save", record_promise)
    monkeypatch.setattr(TokenSetWriter, "__init__", record_start)

    def encode(folder: Path, first: bool = False) -> None:
        encode_file(
            tokenizer(first), text, folder / name, chunk_size=40, num_threads=1, overwrite=True, resume=True, **options
        )

    def check(disk: Path) -> Iterator[tuple[str, Tree]]:
        """Encode; yield the states that can be resumed, and check that one in five of all can be completed."""
        promised.clear()
        for what, found, kept in states_of(disk, lambda: encode(disk), promised):
            is_new = all(found.get(file) == content for file, content in new.items())
            if "done" in kept:
                assert is_new, what
                continue
            if any(".ckpt." in file for file in found):
                yield what, found
            if choose.random() < 0.2:
                begun.clear()
                place = placed(found, tmp_path / "after")
                encode(place)  # or complete what got its name
                assert is_new or not begun or begun[-1] >= kept.get("tokens", 0), (what, begun, kept)
                assert read_tree(place) == new, what

    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose, disk = random.Random(seed), tmp_path / "disk"
    for folder in (whole, disk):
        folder.mkdir()
        if over:
            encode(folder, first=True)
    encode(whole)
    new = read_tree(whole)
    states = [*check(disk)]
    what, tree = choose.choice(states)
    print("cut again:", what)  # noqa: T201
    assert sum(1 for _ in check(placed(tree, tmp_path / "again"))) > 0


@pytest.mark.parametrize("to", [known.name for known in FORMATS])
def test_each_file_of_a_tokenizer_is_the_earlier_one_or_the_new_one(tmp_path: Path, to: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    tokenizer(False).save(disk / "kept", to)
    old = read_tree(disk)

    def save_twice() -> None:
        tokenizer(True).save(disk / "kept", to, overwrite=True)
        tokenizer(True).save(disk / "new" / "one", to)

    for what, found, promised in states_of(disk, save_twice):
        new = read_tree(disk)
        assert {*old} <= {*found}, what
        for name in (name for name in found if not name.endswith(".part")):
            assert found[name] in (old.get(name, new[name]), new[name]), (what, name)
        assert not promised or found == new, what
    assert old != {name: new[name] for name in old}
