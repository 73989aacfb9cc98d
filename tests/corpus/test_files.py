"""Files of other formats are recognised by their first bytes, and named with a remedy."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from corpus_forms import COMPRESSORS, write_parquet

import bpeflow
from bpeflow.cli.main import main
from bpeflow.corpus.checks import _other_format
from bpeflow.corpus.files import InputFile, open_blocks
from bpeflow.errors import CorpusError

TEXT = b"Once upon a time there was a text.\n" * 40


def tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("text.txt")
        member.size = len(TEXT)
        archive.addfile(member, io.BytesIO(TEXT))
    return file.getvalue()


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("text.txt", TEXT)
    return file.getvalue()


def array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(99, dtype=np.uint16))
    return file.getvalue()


def arrays() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, counts=np.arange(99))
    return file.getvalue()


OTHERS = {
    "UTF-16": (TEXT.decode().encode("utf-16"), r"is UTF-16.*: .*convert it to UTF-8 \(iconv -f UTF-16 -t UTF-8\)"),
    "UTF-16BE": (b"\xfe\xff" + TEXT.decode().encode("utf-16-be"), "is UTF-16"),
    "UTF-16LE without a mark": ("A corpus".encode("utf-16-le"), r"is UTF-16.*iconv -f UTF-16LE -t"),
    "UTF-16BE without a mark": ("A corpus".encode("utf-16-be"), r"is UTF-16.*iconv -f UTF-16BE -t"),
    "UTF-32": (TEXT.decode().encode("utf-32"), "is UTF-32.*iconv -f UTF-32"),
    "Parquet": (b"PAR1\x15\x04 and so on", "is Parquet.*: .*use input_format='parquet', or name it .parquet"),
    "zip": (zipped(), "is a zip archive.*: .*unpack it"),
    "npz": (arrays(), r"is an archive of arrays \(NumPy\), such as the counts of a run.*: .*exclude it"),
    "tar": (tar(), "is a tar archive.*: .*unpack it"),
}
TOKEN_IDS = {
    "a sidecar": (b'{\n  "format": "bpeflow tokens",', "is the sidecar of a token file.*: .*leave out token ids"),
    "npy": (array(), r"is an array \(NumPy\), such as token ids.*: .*leave out token ids"),
    "an index": (b"MMIDIDX\0\0\x01", r"is the index of token ids \(Megatron-LM\).*: .*leave out token ids"),
}

#: The files of each layout.
TOKEN_FILES = {
    "bin": ["t.bin", "t.bin.json", "t.bin.idx"],
    "npy": ["t.npy", "t.npy.json", "t.npy.idx"],
    "megatron": ["t.bin", "t.bin.json", "t.idx"],
}


@pytest.mark.parametrize("name", ["corpus.txt", "corpus.jsonl"])
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("content", "said"), (OTHERS | TOKEN_IDS).values(), ids=[*OTHERS, *TOKEN_IDS])
def test_other_formats_are_recognised_whatever_they_are_called(
    tmp_path: Path, name: str, compressed: bool, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(gzip.compress(content) if compressed else content)
    inside = ".* inside gzip: decompress it, then " if compressed else ""
    with pytest.raises(CorpusError, match=f"{name} {said}") as raised:
        bpeflow.count(tmp_path / name)
    assert not inside or " inside gzip: decompress it, then " in str(raised.value)


@pytest.mark.parametrize("policy", ["error", "replace", "skip"])
@pytest.mark.parametrize(("layout", "names"), TOKEN_FILES.items())
def test_token_ids_are_no_text_whatever_is_accepted(
    tmp_path: Path, layout: str, names: list[str], policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corpus").write_bytes(TEXT)
    out = tmp_path / names[0]
    tokenizer = bpeflow.Tokenizer.train(tmp_path / "corpus", vocab_size=257, special_tokens=["<|endoftext|>"])
    tokenizer.encode_file(tmp_path / "corpus", out, index=True, format=layout)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["corpus", *names])
    for name in names:
        with pytest.raises(CorpusError, match=f"{name} .*token.*: leave out token ids by exclude=") as raised:
            bpeflow.count([tmp_path / "corpus", tmp_path / name], invalid_utf8=policy)
    globs = re.findall(r"'(.*?)'", str(raised.value))
    assert bpeflow.count(tmp_path, exclude=globs) == bpeflow.count(tmp_path / "corpus")
    flags = ["--input", str(tmp_path), "--vocab_size", "257", "--invalid_utf8", policy]
    assert main(["train", *flags, "--out_dir", str(tmp_path / "run")]) == 2
    assert "leave out token ids by --exclude '*.bin' '*.idx' '*.npy'" in capsys.readouterr().err


def test_a_bin_without_the_sidecar_of_a_token_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(TEXT)
    (tmp_path / "a.bin.json").write_text('{"format": "other"}')
    assert bpeflow.count(tmp_path / "a.bin") == bpeflow.count(iter([TEXT]))


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_files_that_were_compressed_twice_are_refused(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "corpus.gz").write_bytes(gzip.compress(COMPRESSORS[suffix](TEXT)))
    with pytest.raises(CorpusError, match=r"corpus\.gz is \w+ inside gzip: decompress it, then decompress that, too"):
        bpeflow.count(tmp_path / "corpus.gz")


def test_all_local_files_are_looked_at_before_any_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff is not UTF-8 either, but that is found by reading it")
    (tmp_path / "b").write_bytes("ab".encode("utf-16"))
    with pytest.raises(CorpusError, match="b is UTF-16"):
        bpeflow.count(tmp_path)


@pytest.mark.parametrize("policy", ["replace", "skip"])
def test_a_file_that_is_not_utf8_is_accepted_where_that_is_asked_for(
    tmp_path: Path, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a").write_bytes(TEXT)
    (tmp_path / "b").write_bytes(b"\xff\xfea\0")
    counts = bpeflow.count(tmp_path, invalid_utf8=policy)
    assert counts == bpeflow.count(
        iter([TEXT, *([b"\xff\xfea\0"] if policy == "replace" else [])]), invalid_utf8=policy
    )
    bpeflow.count(tmp_path / "b", invalid_utf8="replace")
    assert "b is UTF-16" in caplog.text


@pytest.mark.parametrize(
    "text", [b"", b"PAR1S\nis no Parquet", b"PKs", b"\xef\xbb\xbfBOM", b"x" * 257 + b"ustar ", "þÿ".encode(), b"\0\0\0"]
)
def test_text_is_not_taken_for_something_else(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(text)
    with open_blocks(InputFile(str(tmp_path / "a.txt"), None)) as blocks:
        blocks.check("error")
    assert _other_format("a.txt", text) is None


def test_a_mistaken_parquet_name_is_explained(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra parquet)")
    (tmp_path / "a.parquet").write_bytes(b'{"text": "a"}\n')
    with pytest.raises(CorpusError, match=r"a\.parquet: not Parquet, or damaged .*; check input_format"):
        bpeflow.count(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(TEXT)
    with pytest.raises(CorpusError, match=r"b\.parquet: not Parquet, or damaged"):
        bpeflow.count(tmp_path / "b.parquet")
    write_parquet(tmp_path / "c.txt", ["one text"])
    with pytest.raises(CorpusError, match=r"c\.txt is Parquet: use input_format='parquet'"):
        bpeflow.count(tmp_path / "c.txt")
    assert bpeflow.count(tmp_path / "c.txt", input_format="parquet") == bpeflow.count(iter(["one text"]))


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (b'{"text": "a"}\n{"text": "b"}\n', True),
        (b'\xef\xbb\xbf {"text": "a"}', True),
        (b'{"a \\" b": 1}\r\n', True),
        (b'{"text": "' + b"a" * 10_000 + b'"}\n', True),
        (b'{"text": "cut off\n', False),
        (b'{\n  "name": "printed over several lines"\n}\n', False),
        (b'["a", "b"]\n', False),
        (b"{a set}\n", False),
        (b"{}\n", False),
    ],
)
def test_json_lines_are_recognised_by_the_first_line(start: bytes, expected: bool) -> None:
    assert (_other_format("a.txt", start) == ("JSON Lines", "use input_format='jsonl', or name it .jsonl")) == expected


def test_json_lines_under_another_name_are_text_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = json.dumps({"text": "one"}) + "\n"
    for name in ("a.json", "b.txt"):
        (tmp_path / name).write_text(line, encoding="utf-8")
    as_text = bpeflow.count(iter([line, line]))
    caplog.clear()
    assert bpeflow.count(tmp_path) == as_text
    [warning] = caplog.messages
    assert warning.startswith(f"{tmp_path / 'a.json'}: read as plain text, marks and names of fields included")
    assert "use input_format='jsonl', or name it .jsonl" in warning
    caplog.clear()
    assert bpeflow.count(tmp_path, input_format="text") == as_text
    assert bpeflow.count(tmp_path, input_format="jsonl") == bpeflow.count(iter(["one", "one"]))
    assert not caplog.messages


@pytest.mark.parametrize(("name", "warned"), [("a.json", True), ("a.JSON.gz", True), ("a.txt", False), ("json", False)])
def test_a_file_of_json_is_text_with_a_warning(
    tmp_path: Path, name: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    content = b'[\n  {"text": "one"},\n  {"text": "two"}\n]\n'
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert bpeflow.count(tmp_path / name) == bpeflow.count(iter([content]))
    assert ["looks like JSON: convert it" in message for message in caplog.messages] == [True] * warned
    caplog.clear()
    bpeflow.count(tmp_path / name, input_format="text")
    assert not caplog.messages


def test_compressed_json_lines_under_another_name_are_text_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b'{"text": "one"}\n'))
    bpeflow.count(tmp_path / "a.txt.gz", input_format="text")
    assert not caplog.messages
    bpeflow.count(tmp_path / "a.txt.gz")
    [warning] = caplog.messages
    assert "a.txt.gz: read as plain text" in warning
