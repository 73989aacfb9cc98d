"""The page about a run, and what is sent to its script."""

from __future__ import annotations

import html
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import zlib
from base64 import b64decode
from pathlib import Path

import pytest

import bpeflow
from bpeflow._util import machine
from bpeflow.cli.main import main
from bpeflow.errors import ConfigError
from bpeflow.look.page import load_run, packed_vocab, write_page
from bpeflow.training import train as training

pytest.importorskip("matplotlib", reason="charts need matplotlib: pip install 'bpeflow[report]'")


@pytest.fixture(scope="session")
def page(run: Path) -> Path:
    """Write the page of a run, beside its other files."""
    assert main(["report", str(run)]) == 0
    return run / "report.html"


def text_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]*>", " ", page.read_text(encoding="utf-8")))


def test_a_page_says_what_was_trained_on_what(page: Path, corpus: Path) -> None:
    text = text_of(page)
    for part in ("small", str(corpus), "320 tokens", "vocab_size", "1 file of ", " and 61 documents: "):
        assert part in text, part
    source = page.read_text(encoding="utf-8")
    titles = re.findall(r"<figure><h3>(.*?)</h3>(<img)?", source)
    assert titles == [
        (title, "<img")
        for title in (
            "Throughput",
            "Queues",
            "Growth of distinct pre-tokens",
            "Merge counts",
            "Lengths of tokens",
            "Bytes per token by size of the vocabulary",
        )
    ]
    assert "&lt;b&gt;&amp;amp;" in re.sub(r"</?span[^>]*>|│", "", source), "text of the corpus is escaped"
    assert "background-color: #a6c8ff" in source
    assert re.search(r"Time of the stages\s+stage\s+seconds\s+chunk reader\s+\d+\.\d .*learning\s+\d+\.\d\s+Wall", text)


def test_a_page_needs_no_other_file(page: Path) -> None:
    source = page.read_text(encoding="utf-8")
    assert not re.search(r"""\b(src|href)=["'](?!data:)""", source)
    assert "@import" not in source and "url(http" not in source
    assert "default-src 'none'" in source
    charts = [b64decode(chart).decode() for chart in re.findall(r"data:image/svg\+xml;base64,([^\"]*)", source)]
    assert len(charts) == 6
    assert all(chart.rstrip().endswith("</svg>") for chart in charts)
    assert not any("<text" in chart for chart in charts), "a browser's font may be wider than the one that was measured"
    ids = re.findall(r'\bid="([^"]*)"', source)
    assert len(ids) == len(set(ids))
    assert page.stat().st_size < 350_000


def test_times_of_a_resumed_run_follow_those_of_the_run_before(run: Path) -> None:
    data = load_run(run)
    assert [sample["elapsed"] for sample in data.monitored] == pytest.approx([0.1, 0.2, 0.3])


def test_a_run_of_several_sources_on_text_that_was_held_out(
    other_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    held_out = tmp_path / "held_out.txt"
    held_out.write_text("lower theory, newer words " * 9, encoding="utf-8")
    assert main(["report", str(other_run), "--out", str(out), "--sample", str(held_out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    text = text_of(out)
    assert re.search(r"Settings\s+Those that differ .*pattern: o200k", text, re.DOTALL)
    assert re.search(r"finished\s+\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", text)
    assert re.search(r"when it was merged\. [\d,]+ times for the last merge\.", text)
    assert re.search(r"Sources\s+source\s+weight .* prose\s+1 .* again\s+2", text, re.DOTALL)
    assert f"Measured on {held_out}." in text


def test_each_source_has_a_sample_and_blank_text_none(tmp_path: Path) -> None:
    separator = "<|endoftext|>"
    texts = {"first": f" {separator}low lower{separator}\n" * 9, "second": "東京 " * 400, "blank": " \n" * 99}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    sources = [{"name": name, "paths": str(tmp_path / name), "weight": 0.5} for name in texts]
    bpeflow.train({"sources": sources, "vocab_size": 270, "out_dir": str(tmp_path / "run"), "output": {"report": True}})
    source = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    samples = re.search(r"<h2>Samples</h2>(.*)<h2>Vocabulary", source, re.DOTALL)
    assert samples is not None
    boxes = re.findall(r'<h3>(\w+)</h3>\n<div class="text">(.*?)</div>', samples[1], re.DOTALL)
    shown = {name: html.unescape(re.sub(r"<[^>]*>|│", "", box)) for name, box in boxes}
    assert shown["first"] == "low lower" and shown["second"].startswith("東京")
    assert [*shown] == ["first", "second"]


def test_no_doubling_is_claimed_of_a_vocabulary_that_never_doubles(page: Path, run: Path) -> None:
    assert bpeflow.Tokenizer.load(run).vocab_size < 2 * 256
    assert "oubling the vocabulary" not in text_of(page)


def test_a_run_that_only_counted(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "counted"
    bpeflow.train({"input": str(corpus), "skip_merge": True, "out_dir": str(out), "output": {"report": True}})
    text = text_of(out / "report.html")
    assert "none: the run only counted" in text
    assert "a run with the monitor takes one every" in text
    assert "Merge counts" not in text


def test_a_folder_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    reasons = {tmp_path: "not a run folder: it has no run.json", file: "a file, not a run folder"}
    for path, reason in (reasons | {tmp_path / "none": "no such folder"}).items():
        assert main(["report", str(path)]) == 2
        assert capsys.readouterr().err == f"bpeflow: {path}: {reason}\n"
    (tmp_path / "run.json").touch()
    (tmp_path / "vocab_300").mkdir()
    assert main(["report", str(tmp_path / "vocab_300")]) == 2
    assert capsys.readouterr().err.endswith(f"it has no run.json; the run is {tmp_path}\n")


def test_an_unfinished_run(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(TypeError):
        patch.setattr("bpeflow.training.train.learn_with_settings", None)
        train(corpus, tmp_path / "run")
    assert main(["report", str(tmp_path / "run")]) == 2
    how = f"to continue: bpeflow --resume --out_dir {tmp_path}/run"
    assert capsys.readouterr().err == f"bpeflow: {tmp_path}/run: the run is unfinished; {how}\n"


def test_a_sample_that_is_missing_or_empty(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--sample", "missing.txt"]) == 2
    assert capsys.readouterr().err.startswith("bpeflow: the input missing.txt does not exist; check the path and")
    (tmp_path / "empty.txt").touch()
    assert main(["report", str(run), "--sample", str(tmp_path / "empty.txt")]) == 2
    assert capsys.readouterr().err == f"bpeflow: the sample, {tmp_path}/empty.txt, has no text in local files\n"


# ---- with a run ----


def train(corpus: Path, out: Path, **options: object) -> list[str]:
    bpeflow.train({"input": str(corpus), "vocab_size": 260, "out_dir": str(out), **options})
    return sorted(path.name for path in out.iterdir())


def test_long_runs_get_a_page_and_short_ones_on_request(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[list[Path]] = []
    monkeypatch.setattr("bpeflow.look.page.write_page", lambda folder, path: written.append([folder, path]))
    out = tmp_path / "run"
    train(corpus, out)
    train(corpus, out, overwrite=True, output={"report": True})
    assert written.pop() == [out, out / "report.html"] and not written
    monkeypatch.setattr(training, "PAGE_AFTER", 0.0)
    train(corpus, out, overwrite=True, output={"report": False})
    assert not written
    train(corpus, out, overwrite=True)
    assert len(written) == 1
    monkeypatch.setattr(training, "find_spec", lambda name: None)
    train(corpus, out, overwrite=True)
    assert len(written) == 1


def test_without_matplotlib_a_run_succeeds_with_a_warning(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(module: str) -> object:
        raise ModuleNotFoundError(f"No module named {module!r}")

    monkeypatch.setattr(machine, "import_module", missing)
    with caplog.at_level(logging.WARNING):
        names = train(corpus, tmp_path / "run", output={"report": True})
    assert "run.json" in names and "report.html" not in names
    assert "charts need matplotlib: pip install 'bpeflow[report]'" in caplog.text
    with pytest.raises(ConfigError, match="none: no such folder"):  # before the library that is missing
        write_page(tmp_path / "none", tmp_path / "report.html")


def test_the_page_of_an_earlier_run_is_replaced(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(corpus, out)
    (out / "report.html").write_text("earlier", encoding="utf-8")
    assert "report.html" not in train(corpus, out, overwrite=True)


def test_small_runs_import_neither_matplotlib_nor_rich(corpus: Path, tmp_path: Path) -> None:
    script = "import sys, bpeflow\nbpeflow.train({'input': sys.argv[1], 'vocab_size': 260, 'out_dir': sys.argv[2]})\n"
    script += "print(sorted({'matplotlib', 'rich'} & {*sys.modules}))"
    command = [sys.executable, "-c", script, str(corpus), str(tmp_path / "run")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


# ---- in a browser ----


def in_browser(address: str, profile: Path, *flags: str) -> str:
    """Return a page as a browser shows it, as HTML. It must not complain of anything."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    command = [
        chromium, "--headless=new", "--disable-gpu", "--virtual-time-budget=3000", "--enable-logging=stderr",
        f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else []), *flags, "--dump-dom", address,
    ]  # fmt: skip
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert not re.search(r"CONSOLE.*", shown.stderr), shown.stderr
    return shown.stdout


#: Writes into the title which words are broken (the lines of a name) and which boxes are shown without content.
MEASURE = """
<script>setTimeout(() => {
  const range = document.createRange();
  const lines = (cell) => (range.selectNodeContents(cell), range.getClientRects().length);
  const broken = [...document.querySelectorAll("td.name")].filter((cell) => lines(cell) > 1);
  const boxes = [...document.querySelectorAll(".text, #rows")];
  const empty = boxes.filter((box) => box.offsetHeight && !box.innerText.trim());
  const wide = document.documentElement.scrollWidth > innerWidth;
  document.title = `broken: ${broken.map((cell) => cell.textContent)}; empty: ${empty.length}; wide: ${wide}; rows: ${
    document.getElementById("rows").offsetHeight > 0}; `;
}, 1000);</script>
"""


@pytest.mark.parametrize("width", [400, 1000])
@pytest.mark.parametrize("modern", [True, False])
def test_in_a_browser_no_name_is_broken_and_no_box_empty(page: Path, tmp_path: Path, width: int, modern: bool) -> None:
    source = page.read_text(encoding="utf-8").replace("<details>", "<details open>")
    too_old = "" if modern else "<script>delete window.DecompressionStream</script>"
    copy = tmp_path / "page.html"
    copy.write_text(
        source.replace("<head>", f"<head>{too_old}").replace("</body>", MEASURE + "</body>"), encoding="utf-8"
    )
    shown = in_browser(copy.as_uri(), tmp_path / "profile", f"--window-size={width},900")
    assert f"<title>broken: ; empty: 0; wide: false; rows: {str(modern).lower()}; </title>" in shown


def test_in_a_browser_the_vocabulary_is_searched(page: Path, tmp_path: Path) -> None:
    shown = in_browser(f"{page.absolute().as_uri()}#search=the", tmp_path)
    rows = re.search(r'<tbody id="visible">(.*?)</tbody>', shown, re.DOTALL)
    assert rows is not None
    first = re.sub(r"<[^>]*>", " ", rows[1].split("</tr>")[0]).split()
    tokenizer = bpeflow.Tokenizer.load(page.parent)
    found = [i for i, token in enumerate(tokenizer.vocab.tokens) if b"the" in token]
    merge = tokenizer.vocab.merge_ids[:, 2].tolist().index(found[0])
    assert first[0] == str(found[0])
    assert first[1] == tokenizer.vocab[found[0]].decode().replace(" ", "·")
    assert first[-2:] == [str(tokenizer.vocab.merge_counts[merge]), str(len(tokenizer.vocab[found[0]]))]
    assert f"{len(found)} of 320 tokens" in shown


def unpacked(packed: str) -> dict[int, tuple[bytes, int | None]]:
    """Return the tokens of each id and the count of its merge, as `page.js` makes them."""
    values = json.loads(zlib.decompress(b64decode(packed)))
    tokens = {int(i): (bytes.fromhex(token), None) for i, token in values["tokens"].items()}
    tokens |= {int(i): (token.encode(), None) for i, token in values["special"].items()}
    token = count = 0
    for left, right, more, change in zip(*(values[name] for name in ("left", "right", "token", "count")), strict=True):
        token, count = token + more, count + change
        tokens.setdefault(token, (tokens[left][0] + tokens[right][0], None if count < 0 else count))
    assert sorted(tokens) == list(range(values["size"]))
    return tokens


def test_all_tokens_and_counts_arrive() -> None:
    learned = bpeflow.learn_merges({"low": 5, "lower": 2, "東京": 3}, 262, ["<s>"])
    vocab = learned.tokenizer().vocab
    tokens = unpacked(packed_vocab(vocab))
    assert [token for _, (token, _) in sorted(tokens.items())] == [*vocab.tokens]
    assert [tokens[i][1] for i in vocab.merge_ids[:, 2].tolist()] == [*learned.counts]


def test_unknown_counts_and_large_vocabularies() -> None:
    merges = [(bytes([left]), bytes([right])) for left in range(97, 123) for right in range(97, 123)]
    merges += [(left + right, b"x") for left, right in merges]
    vocab = bpeflow.Vocab.build(merges, ["<s>"])
    packed = packed_vocab(vocab.annotated(merge_counts=(*[None] * 700, *[9] * 652)))
    tokens = unpacked(packed)
    assert [tokens[257 + index][1] for index in (0, 699, 700, 1351)] == [None, None, 9, 9]
    assert len(packed) < 6 * len(vocab)
    assert unpacked(packed_vocab(vocab)) == {i: (token, None) for i, (token, _) in tokens.items()}
