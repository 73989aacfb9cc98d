"""Tokenizers by their published names, from caches and from a server on the loopback address."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from real_data import real_data
from small_tokenizer import save_tokenizer

import bpeflow
from bpeflow import FormatError, InputTypeError, Tokenizer, TokenizerNotFoundError
from bpeflow.cli.main import main

URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache of tiktoken. Neither it nor the hub can be reached."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    for library in ("tiktoken", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, library, None)
    return tmp_path


def put(cache: Path, name: str) -> None:
    target = cache / hashlib.sha1(URL.format(name).encode()).hexdigest()
    target.symlink_to(real_data(f"vocabs/{name}.tiktoken"))


def test_encodings_come_from_the_cache_of_tiktoken(cache: Path) -> None:
    put(cache, "r50k_base")
    put(cache, "o200k_base")
    gpt2 = Tokenizer.from_pretrained("gpt2")
    assert gpt2 == Tokenizer.from_pretrained("r50k_base") == Tokenizer.load(real_data("vocabs/r50k_base.tiktoken"))
    assert [Tokenizer.from_pretrained("gpt2", normalizer=name).normalizer for name in ("nfc", None)] == [("nfc",), ()]
    assert Tokenizer.from_pretrained("o200k_harmony").token_to_id("<|channel|>") == 200005


def test_commands_take_names(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(cache, "r50k_base")
    assert main(["show", "gpt2", "hello"]) == 0
    assert "hello" in capsys.readouterr().out
    assert main(["convert", "gpt2", str(cache / "tokenizer.json"), "--to", "huggingface"]) == 0
    assert Tokenizer.load(cache / "tokenizer.json") == Tokenizer.from_pretrained("gpt2")


def test_a_tokenizer_to_extend_or_compare_with_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Tokenizer.train(iter(["low lower lowest"]), 262, special_tokens=[])
    (file,) = [path for path in ours.save(tmp_path / "ours.tiktoken") if path.suffix == ".tiktoken"]
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    file.rename(tmp_path / hashlib.sha1(URL.format("r50k_base").encode()).hexdigest())
    named = Tokenizer.from_pretrained("gpt2")
    (tmp_path / "a.txt").write_text("new news newer newest")
    more = Tokenizer.train(tmp_path / "a.txt", len(named) + 3, init_from="gpt2")
    assert more.vocab.merges[: len(named.vocab.merges)] == named.vocab.merges
    assert len(more) == len(named) + 3
    compared = bpeflow.evaluate({"more": more}, tmp_path / "a.txt", baseline="gpt2")
    assert [row.tokenizer for row in compared] == ["more", "gpt2"]


def test_an_encoding_comes_from_the_package(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Tokenizer.train(iter(["low lower lowest"]), 260)
    monkeypatch.delitem(sys.modules, "tiktoken")
    encoding = ours.to_tiktoken() if importlib.util.find_spec("tiktoken") else pytest.skip("tiktoken is not installed")
    package = ModuleType("tiktoken")
    package.get_encoding = {"r50k_base": encoding}.__getitem__  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiktoken", package)
    assert Tokenizer.from_pretrained("gpt2").encode("low lowest") == ours.encode("low lowest")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cl100k_base", r", and tiktoken is not installed: pip install \S+, or download https://\S+cl100k_base.* save"),
        ("gpt2", r" not installed: pip install tiktoken, or download .*r50k_base.*"),
        ("Qwen/Qwen3-8B", r"^Qwen/Qwen3-8B: no such file or folder, .*: pip install 'bpeflow\[hub\]', or download"),
        ("./runs/mine", r"^\./runs/mine: no such file or folder$"),
        ("a/b/c", r"^a/b/c: no such file or folder$"),
        ("cl100k", r"^cl100k: no such file or folder \(did you mean 'cl100k_base'\?\)"),
        ("", "no such"),
    ],
)  # fmt: skip
def test_an_error_says_what_to_install_or_where_to_put_a_file(cache: Path, name: str, message: str) -> None:
    with pytest.raises(TokenizerNotFoundError, match=message):
        Tokenizer.from_pretrained(name or str(cache / "missing"))


@pytest.mark.parametrize("name", [None, 7, b"gpt2"])
def test_a_name_is_a_str(name: Any) -> None:
    with pytest.raises(InputTypeError, match="it must be a str or a path"):
        Tokenizer.from_pretrained(name)


def test_a_missing_tokenizer_is_a_missing_file(tmp_path: Path) -> None:
    for missing in (tmp_path / "nope", tmp_path):
        with pytest.raises(FileNotFoundError) as caught:
            Tokenizer.load(missing)
        assert isinstance(caught.value, FormatError)
    with pytest.raises(FileNotFoundError):
        Tokenizer.from_files(tmp_path / "vocab.json", tmp_path / "merges.txt")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    """Serve a repository as the hub does. Return the address."""
    files = {path.name: path.read_bytes() for path in save_tokenizer(tmp_path / "served").iterdir()}
    files["model.safetensors"] = b"not needed"

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.partition("?")[0].rpartition("/")[2]
            if self.path.startswith("/api/models/ours/small/tree/"):
                listed = [
                    {"type": "file", "path": name, "size": len(content), "oid": COMMIT}
                    for name, content in files.items()
                ]
                self.answer(200, json.dumps(listed).encode(), "application/json")
            elif self.path.startswith("/api/models/ours/small"):
                siblings = [{"rfilename": name} for name in files]
                content, kind = (
                    json.dumps({"id": "ours/small", "sha": COMMIT, "siblings": siblings}),
                    "application/json",
                )
                self.answer(200, content.encode(), kind)
            elif self.path.startswith("/ours/small/resolve/") and name in files and name != "model.safetensors":
                self.answer(200, files[name], "application/octet-stream")
            else:
                self.send_error(404)

        do_HEAD = do_GET

        def answer(self, status: int, content: bytes, kind: str) -> None:
            self.send_response(status)
            headers = {"Content-Type": kind, "Content-Length": len(content), "X-Repo-Commit": COMMIT}
            for name, value in {**headers, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}.items():
                self.send_header(name, str(value))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def from_hub(script: str, hub: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("huggingface_hub")
    settings = {"HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    environment = {**os.environ, **settings}
    environment.pop("HF_HUB_OFFLINE", None)
    script = f"from bpeflow import Tokenizer\n{script}"
    return subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=False,
    )


def test_a_repository_of_the_hub_is_downloaded(hub: str, tmp_path: Path) -> None:
    expected = Tokenizer.load(tmp_path / "served").encode("the cats")
    done = from_hub("print(Tokenizer.from_pretrained('ours/small').encode('the cats'))", hub, tmp_path)
    assert (done.stdout, done.returncode) == (f"{expected}\n", 0), done.stderr


def test_a_repository_that_is_missing_is_an_error_of_one_line(hub: str, tmp_path: Path) -> None:
    done = from_hub("Tokenizer.from_pretrained('ours/smal')", hub, tmp_path)
    last = done.stderr.splitlines()[-1]
    assert (
        "TokenizerNotFoundError: ours/smal: no such file or folder, and the HuggingFace hub does not have it, or"
        in last
    )


def test_the_reason_of_a_failed_download_is_its_first_cause(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> object:
        try:
            raise OSError(-2, "Name or service not known")
        except OSError as error:
            raise ValueError("Max retries exceeded " * 100) from error

    package = ModuleType("tiktoken")
    package.get_encoding = fail  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiktoken", package)
    with pytest.raises(
        FileNotFoundError, match=r"cannot download it \(Name or service not known\): download \S+ and give"
    ):
        Tokenizer.from_pretrained("cl100k_base")
    assert not list(cache.iterdir())
