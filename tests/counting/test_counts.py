"""`PretokenCounts`: canonical order, files read back unchanged, and invalid files and counts refused."""

from __future__ import annotations

import pickle
import threading
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.counting.count_files import read_npz
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.shards import MAX_COUNT, hash_of
from bpeflow.errors import CountOverflowError, FormatError, InputTypeError
from bpeflow.tokenizer.parallel import encoded_batches
from bpeflow.tokenizer.tokenizer import Tokenizer

tables = st.dictionaries(st.binary(min_size=1, max_size=8), st.integers(1, 2**63 - 1), max_size=20)
addends = st.dictionaries(st.binary(min_size=1, max_size=2), st.integers(1, 2**62 - 1), max_size=8)
texts = st.dictionaries(st.text(min_size=1, max_size=8), st.integers(1, 2**63 - 1), max_size=20)


@given(tables)
def test_counts_descend_and_equal_counts_ascend_by_bytes(table: dict[bytes, int]) -> None:
    counts = PretokenCounts.from_mapping(table)
    assert list(counts.items()) == sorted(table.items(), key=lambda item: (-item[1], item[0]))
    assert len(counts) == len(table)
    assert counts.total == sum(table.values())
    assert counts.total_bytes == sum(len(token) * count for token, count in table.items())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of ZipFile.__del__, in some versions
def test_an_interruption_while_counts_are_saved_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """zipfile complains that it has been left in the middle of a file."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("numpy.lib.format.write_array", interrupted)
    with pytest.raises(KeyboardInterrupt):
        PretokenCounts.from_mapping({"a": 1}).save(tmp_path / "counts.npz")
    assert not list(tmp_path.iterdir())


def test_arrays_are_as_documented_and_read_only() -> None:
    counts = PretokenCounts.from_mapping({b"low": 5, b"er": 7})
    assert counts.data.tobytes() == b"erlow"
    assert (counts.offsets.tolist(), counts.offsets.dtype) == ([0, 2, 5], np.int64)
    assert (counts.counts.tolist(), counts.counts.dtype) == ([7, 5], np.int64)
    with pytest.raises(ValueError, match="read-only"):
        counts.counts[0] = 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["counts.npz", "counts.tsv"])
@given(table=tables)
def test_binary_and_tsv_files_preserve_any_bytes(
    tmp_path_factory: pytest.TempPathFactory, name: str, table: dict[bytes, int]
) -> None:
    path = Path(mkdtemp(dir=tmp_path_factory.getbasetemp())) / name
    counts = PretokenCounts.from_mapping(table)
    counts.write(path)
    assert PretokenCounts.read(path) == counts


def test_tsv_is_readable_and_escapes_only_what_it_must(tmp_path: Path) -> None:
    path = tmp_path / "counts.tsv"
    PretokenCounts.from_mapping({b" caf\xc3\xa9": 9, b"a\tb\n\\": 3, b"\xff": 1}).write(path)
    assert path.read_text(encoding="utf-8") == " café\t9\na\\tb\\n\\\\\t3\n\\xff\t1\n"


def test_tsv_is_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpeflow.counting.count_files._STEP", 3)
    counts = PretokenCounts.from_mapping({b"\n%d\xe2\x82" % number: 1 + number % 4 for number in range(20)})
    counts.write(tmp_path / "counts.tsv")
    assert PretokenCounts.read(tmp_path / "counts.tsv") == counts


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no tab", "a tab"),
        ("a\tmany", "an integer"),
        ("a\t-1", "an integer"),
        ("a\t0", "at least 1"),
        ("a\t", "at least 1"),
        ("a\tb\t1", "a tab and an integer"),
        ("a\t1x2", "an integer"),
        ("a\t1\r", "an integer"),
        ("\t3", "empty pre-token"),
        ("\\q\t3", r"unknown escape \\q$"),
        ("a\\\t3", r"unknown escape \\$"),
        ("a\\\\\\\t3", r"unknown escape \\$"),
        ("\\xfg\t3", r"unknown escape \\x$"),
        ("\\x4\t3", r"unknown escape \\x$"),
        ("\\xFF\t3", r"unknown escape \\x$"),
        ("ok\t2", "occurs twice"),
        ("a\t9223372036854775808", "at most 9223372036854775807"),
        pytest.param("a\t" + "9" * 5000, "an integer of at least 1 and at most", id="5000 digits"),
        pytest.param("word " * 5000, r"found b'word word .{,80}$", id="a long line"),
    ],
)
def test_invalid_tsv_is_an_error_with_the_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "counts.tsv"
    path.write_text(f"ok\t1\n{line}\n", encoding="utf-8")
    with pytest.raises(FormatError, match=message) as caught:
        PretokenCounts.read(path)
    assert f"{path}, line 2" in str(caught.value)


def test_tsv_is_read_in_blocks_of_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "counts.tsv"
    for size in range(1, 20):
        monkeypatch.setattr("bpeflow.counting.count_files._BLOCK", size)
        path.write_bytes(b"a\t1\n\\\\n\\n\\\\\t2\n\\\\\\x0a\t9223372036854775807")  # the last line does not end
        assert dict(PretokenCounts.read(path)) == {b"a": 1, b"\\n\n\\": 2, b"\\\n": MAX_COUNT}
        path.write_bytes(b"a\t1\nb\t2\nc\t3\nb\t1\n")
        with pytest.raises(FormatError, match="line 4: the pre-token b'b' occurs twice"):
            PretokenCounts.read(path)
    path.write_bytes(b"")
    assert len(PretokenCounts.read(path)) == 0


def test_tsv_counts_may_have_leading_zeros(tmp_path: Path) -> None:
    path = tmp_path / "counts.tsv"
    path.write_text("a\t" + "0" * 30 + "7\n", encoding="utf-8")
    assert PretokenCounts.read(path).most_common() == [(b"a", 7)]


@pytest.mark.parametrize("name", ["counts.NPZ", "counts.Tsv"])
def test_endings_may_be_in_any_case(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    counts = PretokenCounts.from_mapping({"a": 2, "b": 1})
    counts.write(path)
    assert PretokenCounts.read(path) == counts


@pytest.mark.parametrize("name", ["counts.csv", "counts", "counts.tsv.gz", ".tsv", "counts.json"])
def test_other_endings_are_errors_except_for_save_and_load(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    counts = PretokenCounts.from_mapping({"a": 2, "b": 1})
    with pytest.raises(FormatError, match=r"\.npz or \.tsv") as caught:
        counts.write(path)
    assert str(path) in str(caught.value)
    assert not path.exists()
    counts.save(path)
    assert PretokenCounts.load(path) == counts
    with pytest.raises(FormatError, match=r"\.npz or \.tsv"):
        PretokenCounts.read(path)


def test_a_folder_or_a_path_in_place_of_counts_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"is a folder; the counts in a run folder are the file counts\.npz"):
        PretokenCounts.load(tmp_path)
    with pytest.raises(InputTypeError, match=r"not str; PretokenCounts\.load reads a file"):
        PretokenCounts.from_mapping("runs/owt")  # type: ignore[arg-type]


def test_files_of_the_other_byte_order_can_be_read(tmp_path: Path) -> None:
    counts = PretokenCounts.from_mapping({b"abc": 1 << 40, b"de": 1})
    arrays = {"version": np.array([1]), "offsets": counts.offsets, "counts": counts.counts}
    for order in "<>":
        ordered = {name: array.astype(array.dtype.newbyteorder(order)) for name, array in arrays.items()}
        np.savez(tmp_path / "counts.npz", data=counts.data, **ordered)
        assert PretokenCounts.load(tmp_path / "counts.npz") == counts


def test_files_are_little_endian(tmp_path: Path) -> None:
    PretokenCounts.from_mapping({b"abc": 2}).save(tmp_path / "counts.npz")
    with np.load(tmp_path / "counts.npz") as arrays:
        assert {name: array.dtype.str for name, array in arrays.items()} == {
            **dict.fromkeys(("version", "offsets", "counts"), "<i8"),
            "data": "|u1",
        }


def test_another_kind_of_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "counts.npz"
    path.write_bytes(b"hello")
    with pytest.raises(FormatError, match="not a file of pre-token counts") as caught:
        PretokenCounts.load(path)
    assert "pickle" not in str(caught.value)  # numpy's message advises allow_pickle=True, which would be unsafe
    np.savez(path, other=np.zeros(3))
    with pytest.raises(FormatError, match="not a file of pre-token counts"):
        PretokenCounts.load(path)


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "counts.npz"
    PretokenCounts.from_mapping({b"abc": 3, b"de": 1}).save(path)
    content = path.read_bytes()
    for length in range(0, len(content), 40):
        path.write_bytes(content[:length])
        with pytest.raises(FormatError, match=r"counts\.npz"):
            PretokenCounts.load(path)


def test_a_pickle_in_a_counts_file_is_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "counts.npz"
    harmful = np.array([{"a": 1}], dtype=object)
    np.savez(path, version=np.array([1]), data=harmful, offsets=np.zeros(1, np.int64), counts=np.zeros(0, np.int64))
    with pytest.raises(FormatError, match="not a file of pre-token counts"):
        PretokenCounts.load(path)


@pytest.mark.parametrize(
    ("offsets", "counts"),
    [
        ([0, 2, 3], [1, 2]),
        ([0, 3, 3], [2, 1]),
        ([0, 2, 4], [2, 1]),
        ([1, 2, 3], [2, 1]),
        ([0, 3], [2, 1]),
        ([0, 2, 3], [1, 0]),
    ],
)
def test_invalid_arrays_are_an_error(offsets: list[int], counts: list[int]) -> None:
    data = np.frombuffer(b"abc", dtype=np.uint8)
    with pytest.raises(FormatError):
        PretokenCounts(data, np.array(offsets, np.int64), np.array(counts, np.int64))


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([(b"a", 2), (b"b", 1), (b"a", 1)], "occurs twice"),
        ([(b"a", 1), (b"a", 1)], "occurs twice"),
        ([(b"b", 1), (b"a", 1)], "not in ascending order of bytes"),
    ],
)
def test_a_file_out_of_canonical_order_is_an_error(
    tmp_path: Path, items: list[tuple[bytes, int]], message: str
) -> None:
    path = tmp_path / "counts.npz"
    data = np.frombuffer(b"".join(token for token, _ in items), dtype=np.uint8)
    PretokenCounts(data, np.arange(len(items) + 1), np.array([count for _, count in items])).save(path)
    with pytest.raises(FormatError, match=message) as caught:
        PretokenCounts.load(path)
    assert str(path) in str(caught.value)


def test_a_file_is_checked_without_a_walk_over_all_pretokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of these have the same hash, as pre-tokens of real text have."""
    alike = (b" " + b"." * 20 + b"\n", b"." * 23 + b"\n")
    assert hash_of(alike[0]) == hash_of(alike[1])
    path = tmp_path / "counts.npz"
    expected = PretokenCounts.from_items([(alike[0], 2), (b"a", 2), (alike[1], 1)])
    expected.save(path)
    with monkeypatch.context() as patched:
        patched.setattr(PretokenCounts, "_pairs", None)
        counts = PretokenCounts.load(path)
    assert counts == expected


@pytest.mark.parametrize("second", [1, 2])
def test_a_duplicate_pretoken_is_an_error(second: int) -> None:
    with pytest.raises(FormatError, match="b'a' occurs twice"):
        PretokenCounts.from_items([(b"a", 1), (b"b", 1), (b"a", second)])


@pytest.mark.parametrize("count", [1.5, 1.0, True, "1", None, 0, -1, np.float64(2), np.int64(0)])
def test_a_count_below_1_or_not_an_integer_is_an_error_that_names_the_pretoken(count: object) -> None:
    with pytest.raises(FormatError, match="pre-token b'low'"):
        PretokenCounts.from_mapping({"er": 7, "low": count})  # type: ignore[dict-item]


def test_counts_may_be_numpy_integers() -> None:
    counts = PretokenCounts.from_mapping({"a": np.uint8(200), "b": np.int64(3)})  # type: ignore[dict-item]
    assert list(counts.items()) == [(b"a", 200), (b"b", 3)]


def test_a_lone_surrogate_is_an_error() -> None:
    with pytest.raises(FormatError, match="lone surrogate"):
        PretokenCounts.from_mapping({"\ud800": 1})


def test_an_empty_pretoken_is_an_error() -> None:
    with pytest.raises(FormatError, match="empty pre-token"):
        PretokenCounts.from_mapping({"": 1, "a": 2})


@pytest.mark.parametrize("count", [2**63, 10**5000], ids=["2**63", "10**5000"])
def test_a_count_beyond_64_bits_raises(count: int) -> None:
    with pytest.raises(CountOverflowError, match="64 bits"):
        PretokenCounts.from_mapping({b"a": count})


def test_a_pretoken_as_both_str_and_bytes_is_an_error() -> None:
    with pytest.raises(FormatError, match="twice"):
        PretokenCounts.from_mapping({b"a": 1, "a": 2})  # type: ignore[dict-item]


def test_counts_can_be_pickled() -> None:
    counts = PretokenCounts.from_mapping({b"abc": 3, b"de": 1})
    assert pickle.loads(pickle.dumps(counts)) == counts


def test_a_failed_save_keeps_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "counts.npz"
    before = PretokenCounts.from_mapping({b"abc": 3})
    before.save(path)
    monkeypatch.setattr(np, "savez", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        PretokenCounts.from_mapping({b"other": 1}).save(path)
    assert PretokenCounts.load(path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["counts.npz"]


def test_counts_are_a_mapping_in_canonical_order() -> None:
    counts = PretokenCounts.from_mapping({"low": 5, "é": 7, " new": 5})
    assert isinstance(counts, Mapping)
    assert list(counts) == ["é".encode(), b" new", b"low"]
    assert dict(counts) == dict(counts.items()) == {"é".encode(): 7, b" new": 5, b"low": 5}
    assert (counts["é"], counts["é".encode()], counts.get(b"high", 0), counts.get("high")) == (7, 7, 0, None)
    assert "low" in counts
    assert (b"low", 5) in counts.items()
    for missing in ("high", b"lo", "\ud800", 5):
        assert missing not in counts
        with pytest.raises(KeyError):
            counts[missing]  # type: ignore[index]
    assert counts == {"é".encode(): 7, b" new": 5, b"low": 5}
    assert counts != PretokenCounts.from_mapping({"low": 5})


def test_the_most_common_come_first() -> None:
    counts = PretokenCounts.from_mapping({"low": 5, "er": 7, " new": 5})
    everything = [(b"er", 7), (b" new", 5), (b"low", 5)]
    assert [counts.most_common(n) for n in (None, 9, 2, 1, 0, -1)] == [
        everything, everything, everything[:2], everything[:1], [], [],
    ]  # fmt: skip


def test_a_look_up_changes_neither_equality_nor_pickles() -> None:
    counts, same = (PretokenCounts.from_mapping({"low": 5}) for _ in range(2))
    assert counts["low"] == 5
    assert counts == same
    assert pickle.dumps(counts) == pickle.dumps(same)


@given(addends, addends)
def test_a_sum_has_the_counts_of_both(a: dict[bytes, int], b: dict[bytes, int]) -> None:
    total = PretokenCounts.from_mapping(a) + PretokenCounts.from_mapping(b)
    assert total == PretokenCounts.from_mapping(Counter(a) + Counter(b))


def test_a_sum_beyond_64_bits_is_an_error() -> None:
    most, one = (PretokenCounts.from_mapping({"a": count}) for count in (MAX_COUNT, 1))
    assert (most + PretokenCounts.from_mapping({"b": 1}))["a"] == MAX_COUNT
    with pytest.raises(CountOverflowError, match="a count does not fit 64 bits"):
        most + one
    with pytest.raises(TypeError):
        most + {b"a": 1}  # type: ignore[operator]


def test_a_file_never_takes_more_memory_than_its_size(tmp_path: Path) -> None:
    counts = PretokenCounts.from_mapping({b"abc": 2})
    path = tmp_path / "counts.npz"
    counts.save(path)
    with np.load(path) as arrays:
        np.savez_compressed(path, **{name: arrays[name] for name in arrays.files})
    with pytest.raises(FormatError, match=r"counts\.npz: version\.npy is compressed"):
        PretokenCounts.load(path)
    counts.save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member.replace(b"(3,), }" + b" " * 14, b"(281474976710656,), }"))
    with pytest.raises(FormatError, match="not a file of pre-token counts"):
        PretokenCounts.load(path)


def test_counts_that_a_file_keeps_can_be_unloaded(tmp_path: Path) -> None:
    counts = PretokenCounts.from_mapping({"low": 5, "er": 7})
    counts.unload()  # nothing would have them
    assert counts.most_common() == [(b"er", 7), (b"low", 5)]
    path = tmp_path / "counts.npz"
    counts.save(path)
    counts.kept_in(path)
    PretokenCounts.from_mapping({"other": 1}).save(path)
    assert counts["low"] == 5
    for _ in range(2):
        counts.unload()
        assert counts._arrays is None
        assert len(counts) == 2
        assert counts["low"] == 5
    counts.unload()
    assert pickle.loads(pickle.dumps(counts)) == counts


def test_a_file_that_is_damaged_meanwhile_is_reported(tmp_path: Path) -> None:
    counts = PretokenCounts.from_mapping({"low": 5, "er": 7})
    path = tmp_path / "counts.npz"
    counts.save(path)
    counts.kept_in(path)
    counts.unload()
    path.write_bytes(b"")
    with pytest.raises(FormatError, match="not a file of pre-token counts"):
        counts["low"]


def test_unloaded_counts_are_read_once_by_the_thread_that_encodes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that read the file at the same time share its position, and took it for damaged."""
    readers: list[threading.Thread] = []

    def read(file: Any) -> Any:
        readers.append(threading.current_thread())
        return read_npz(file)

    counts = PretokenCounts.from_mapping({f"{number:04}": 1 for number in range(1000)})
    counts.dump(tmp_path / "counts.npz")
    counts.kept_in(tmp_path / "counts.npz")
    monkeypatch.setattr("bpeflow.counting.counts.read_npz", read)
    monkeypatch.setattr("bpeflow.tokenizer.parallel._BATCH", 10)
    encoder = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])._encoder
    expected = [ids.tolist() for _, ids, _ in encoded_batches(encoder, counts)]
    counts.unload()
    assert [ids.tolist() for _, ids, _ in encoded_batches(encoder, counts)] == expected
    assert readers == [threading.current_thread()]
