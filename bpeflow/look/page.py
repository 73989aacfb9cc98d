"""The page: a run as one HTML file without any reference to another one.

A vocabulary travels in few bytes, for the page's script to search: its tokens are sent as the merges that make them,
two ids each, instead of their bytes. The result is compressed, and the browser decompresses it.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from pydantic import TypeAdapter

from bpeflow import __version__
from bpeflow._util.atomic import write_text
from bpeflow._util.text import format_size
from bpeflow.config import Settings
from bpeflow.corpus.excerpts import TextSample, sample_corpus, sample_texts
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError, FormatError
from bpeflow.flow import MonitorSample
from bpeflow.look.charts import (
    Curve,
    draw_bytes_per_token,
    draw_growth,
    draw_merge_counts,
    draw_monitored,
    draw_token_lengths,
    expected_growth,
    spread,
)
from bpeflow.look.explainer import Explainer
from bpeflow.look.render import make_page, resource
from bpeflow.look.usage import prefixes
from bpeflow.run_dir.layout import COUNTS_FILE, MONITOR_FILE
from bpeflow.run_dir.resume import why_nothing_finished
from bpeflow.run_dir.run_files import RunReport, read_report
from bpeflow.run_dir.summary import describe_run
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Vocab

#: The most bytes of a packed vocabulary. With more the page would pass 2 MB.
_VOCABULARY_BYTES = 1_400_000

#: Samples of the monitor that are drawn. More look the same.
_DRAWN_SAMPLES = 200

#: Pieces of the sample that are shown of a single source, of which each of several has one, and characters of each.
_PIECES, _LENGTH = 3, 500


def write_page(folder: Path, path: Path, sample: Sequence[str] = ()) -> None:
    """Write a page about a run.

    Args:
        folder: the folder of a finished run.
        path: the file to write.
        sample: inputs to measure bytes per token on; by default a sample of the run's own corpus.

    Raises:
        ConfigError: the folder has no finished run, `sample` has no text, or matplotlib is not installed.
        FormatError: a file in the folder is damaged.
    """
    run = load_run(folder, sample)
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    body = "\n".join(
        [
            f'<p class="faint">Written by bpeflow {escape(__version__)} on {now}. This file needs no other.</p>',
            "<h2>Overview</h2>",
            table(["", ""], [*_overview(run)]),
            *_stages(run.report),
            _settings(run),
            "<h2>Charts</h2>",
            f'<div class="charts">{"".join(_figures(run))}</div>',
            *_sources(run),
            *_samples(run),
            *_vocabulary(run),
        ]
    )
    write_text(path, make_page(f"bpeflow: {run.name}", body))


def _figures(run: RunData) -> Iterator[str]:
    yield from draw_monitored(run.monitored)
    yield draw_growth(run.growth)
    if run.tokenizer is None:
        return
    yield draw_merge_counts(run.tokenizer.vocab, run.report.second_stage)
    yield draw_token_lengths(run.tokenizer.vocab)
    ids = np.array([token_id for part in run.encoded for token_id in part.ids], np.int64)
    occurrences = np.bincount(ids, minlength=run.tokenizer.vocab_size)
    found = prefixes(run.tokenizer, occurrences, sum(part.bytes for part in run.encoded), spread)
    yield draw_bytes_per_token(found, run.sample.description)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = False) -> str:
    """Return a table. The first column has names, and with `numbers` the rest have figures. Cells are escaped."""
    kinds = ["name", *["number" if numbers else "value"] * (len(header) - 1)]

    def line(tag: str, cells: Sequence[str]) -> str:
        return "".join(f'<{tag} class="{kind}">{escape(cell)}</{tag}>' for kind, cell in zip(kinds, cells, strict=True))

    head = f"<thead><tr>{line('th', header)}</tr></thead>" if any(header) else ""
    lines = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table>{head}<tbody>{lines}</tbody></table></div>'


# ---- a run, read from its folder ----


class Encoded(NamedTuple):
    """The sample of a source, as the run's tokenizer encodes it."""

    source: str
    bytes: int
    ids: list[int]


class RunData(NamedTuple):
    """What the page shows of a run.

    Attributes:
        name: its name.
        report: what ``run.json`` holds.
        tokenizer: the tokenizer; None if the run only counted.
        monitored: the samples of the monitor, or some of them if there are many; empty without a monitor.
        sample: a sample of text to measure on and to show.
        encoded: the sample of each source, encoded; empty without a tokenizer.
        growth: the growth of distinct pre-tokens with the corpus; None if it is unknown, as of fragments.
    """

    name: str
    report: RunReport
    tokenizer: Tokenizer | None
    monitored: Sequence[Mapping[str, Any]]
    sample: TextSample
    encoded: list[Encoded]
    growth: Curve | None


def load_run(folder: Path, sample: Sequence[str] = ()) -> RunData:
    """Read a run folder.

    Args:
        folder: the folder of a finished run.
        sample: inputs to take the sample of text from; by default it is from the run's own corpus.

    Raises:
        ConfigError: the folder has no finished run, or `sample` has no text.
        FormatError: a file in the folder is damaged.
    """
    report = read_report(folder)
    if report is None:
        raise ConfigError(f"{folder}: {why_nothing_finished(folder)}")
    if sample:
        taken = TextSample(sample_texts({**report.settings, "input": sample, "sources": []}), " ".join(sample))
        if not taken.texts:
            raise ConfigError(f"the sample, {taken.description}, has no text in local files")
    else:
        taken = sample_corpus(report.settings)
    tokenizer = Tokenizer.load(folder) if report.learning is not None else None
    encoded = [] if tokenizer is None else [_encode(tokenizer, *source) for source in taken.texts.items()]
    counts = folder / COUNTS_FILE
    cut = report.counting is not None and report.counting.cut is not None
    growth = expected_growth(PretokenCounts.read(counts).counts) if counts.is_file() and not cut else None
    return RunData(
        folder.resolve().name, report, tokenizer, _read_samples(folder / MONITOR_FILE), taken, encoded, growth
    )


def _encode(tokenizer: Tokenizer, source: str, texts: Iterable[str]) -> Encoded:
    ids = [token_id for text in texts for token_id in tokenizer.encode(text, allowed_special=())]
    return Encoded(source, sum(len(text.encode()) for text in texts), ids)


def _read_samples(path: Path) -> list[dict[str, Any]]:
    """Read the samples of the monitor. The times of a resumed run continue from the interrupted run."""
    if not path.is_file():
        return []
    try:
        samples = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        TypeAdapter(list[MonitorSample]).validate_python(samples)
    except (ValueError, RecursionError) as error:  # pydantic's has the index of the line and the field
        raise FormatError(f"{path}: not samples of the monitor: {' '.join(str(error).split())}") from error
    earlier = last = 0.0
    for sample in samples:
        if sample["elapsed"] + earlier < last:
            earlier = last
        sample["elapsed"] += earlier
        last = sample["elapsed"]
    return samples[:: max(-(-len(samples) // _DRAWN_SAMPLES), 1)]


# ---- what was trained on what ----


def _overview(run: RunData) -> Iterator[tuple[str, str]]:
    report = run.report
    yield from describe_run(report)
    if report.learning is None:
        yield "vocab", "none: the run only counted"
    if run.encoded:
        ratio = sum(part.bytes for part in run.encoded) / max(sum(len(part.ids) for part in run.encoded), 1)
        yield "bytes per token", f"{ratio:.3f} on the sample"
    yield "pattern", str(report.settings.get("pattern"))
    if report.finished:
        yield "finished", report.finished
    yield "bpeflow", report.bpeflow
    versions, memory = report.versions, report.peak_memory_bytes
    peak = f", peak {format_size(memory)} in the main process" if memory else ""
    yield "machine", f"{versions.cores} cores, {versions.platform}, Python {versions.python}{peak}"


def _stages(report: RunReport) -> Iterator[str]:
    """Yield the time of the stages, if they were timed."""
    times = {name: stage.seconds for name, stage in report.counting.stages.items()} if report.counting else {}
    if report.learning:
        times["learning"] = report.learning.seconds
    if times:
        rows = [[name, f"{seconds:.1f}"] for name, seconds in times.items()]
        yield "<h3>Time of the stages</h3>\n" + table(["stage", "seconds"], rows, numbers=True)
        yield '<p class="faint">Wall time, including time in which a stage waited for other stages.</p>'


# ---- settings ----


def _settings(run: RunData) -> str:
    settings = {key: value for key, value in run.report.settings.items() if key not in ("resume", "restart")}
    chosen = _changed(settings, Settings.model_construct().model_dump(mode="json"))
    everything = f"<details><summary>All settings</summary>{_as_yaml(settings)}</details>"
    return f"<h2>Settings</h2>\n<p>Those that differ from the defaults:</p>\n{_as_yaml(chosen)}\n{everything}"


def _changed(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from the defaults. A section with any has only these."""
    return {
        key: _changed(value, defaults[key]) if isinstance(value, dict) and defaults.get(key) else value
        for key, value in values.items()
        if value != defaults.get(key)
    }


def _as_yaml(values: Mapping[str, Any]) -> str:
    return f'<div class="text">{escape(yaml.safe_dump(values, sort_keys=False, allow_unicode=True))}</div>'


# ---- sources and samples ----


def _sources(run: RunData) -> Iterator[str]:
    if run.report.corpus and run.report.corpus.sources:
        rows = [
            [
                source.name,
                f"{source.weight:.10g}",
                "all" if source.sample is None else f"a sample of {format_size(source.sample.max_bytes)}",
                f"{source.files:,}",
                format_size(source.bytes),
                f"{source.documents - source.skipped_documents:,}",
                f"{source.skipped_documents + source.bad_records:,}",
            ]
            for source in run.report.corpus.sources
        ]
        header = ["source", "weight", "taken", "files", "text", "documents", "left out"]
        yield "<h2>Sources</h2>\n" + table(header, rows, numbers=True)
    if len(run.encoded) > 1:
        ratios = [[part.source, f"{part.bytes / max(len(part.ids), 1):.3f}"] for part in run.encoded]
        yield "<h3>Bytes per token by source</h3>\n" + table(["sample of", "bytes per token"], ratios, numbers=True)


def _samples(run: RunData) -> Iterator[str]:
    """Yield some pieces of text in tokens: of a single source several, of several sources one each."""
    stripped = {source: [*filter(None, map(str.strip, texts))] for source, texts in run.sample.texts.items()}
    found = {source: texts for source, texts in stripped.items() if texts}
    if run.tokenizer is None or not found:
        return
    explainer = Explainer(run.tokenizer, run.report.second_stage)
    yield "<h2>Samples</h2>"
    for source, texts in found.items():
        texts = [text for text in texts if len(text) >= _LENGTH] or texts
        pieces = _PIECES if len(found) == 1 else 1
        if pieces == 1:
            yield f"<h3>{escape(source)}</h3>"
        for text in texts[:: max(len(texts) // pieces, 1)][:pieces]:
            yield f'<div class="text">{explainer.explain(text[:_LENGTH]).to_html()}</div>'


# ---- the vocabulary ----


def _vocabulary(run: RunData) -> Iterator[str]:
    if run.tokenizer is None:
        return
    yield "<h2>Vocabulary</h2>"
    packed = packed_vocab(run.tokenizer.vocab)
    if len(packed) > _VOCABULARY_BYTES:
        yield "<p>It is too large for this page.</p>"
        return
    yield (
        '<p class="only-print">On a screen it can be searched here.</p>\n<div class="controls">\n'
        '<input type="search" id="search" aria-label="search" placeholder="text, bytes as \\xe2\\x80, or id:500">\n'
        '<select id="order" aria-label="order"><option value="id">by id</option>'
        '<option value="shortest">shortest first</option><option value="longest">longest first</option></select>\n'
        '<span id="found" class="faint"></span>\n</div>\n<noscript>Searching needs JavaScript.</noscript>\n'
        '<div id="rows" tabindex="0" hidden><table><thead><tr><th class="number">id</th><th>token</th><th>made of</th>'
        '<th class="number">count</th><th class="number">bytes</th></tr></thead>'
        '<tbody><tr><td id="above" colspan="5"></td></tr></tbody><tbody id="visible"></tbody>'
        '<tbody><tr><td id="below" colspan="5"></td></tr></tbody></table></div>'
    )
    yield f'<script type="text/plain" id="vocabulary">{packed}</script>\n<script>\n{resource("page.js")}</script>'


def packed_vocab(vocab: Vocab) -> str:
    """Return a vocabulary as base64 of compressed JSON, which `page.js` reads.

    The JSON has `size`, the number of ids; `tokens`, by id, the bytes of tokens that no merge makes, in hexadecimal;
    `special`, by id, the special tokens; and the columns `left`, `right`, `token` and `count` of the merges, where
    `token` and `count` are differences from one merge to the next. A count that is unknown is -1.
    """
    counts = [-1 if count is None else count for count in vocab.merge_counts or [None] * vocab.merge_count]
    merges = vocab.merge_ids.astype(np.int64)
    specials = {i: token for token, i in vocab.special_tokens.items()}
    others = np.setdiff1d(np.arange(len(vocab)), [*merges[:, 2], *specials])
    values: dict[str, Any] = {
        "size": len(vocab),
        "tokens": {i: vocab.packed_tokens[i].hex() for i in others.tolist()},
        "special": specials,
        "left": merges[:, 0].tolist(),
        "right": merges[:, 1].tolist(),
        "token": np.diff(merges[:, 2], prepend=0).tolist(),
        "count": np.diff(np.array(counts, np.int64), prepend=0).tolist(),
    }
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    return b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"), 9)).decode()
