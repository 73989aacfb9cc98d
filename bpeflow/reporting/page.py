"""The page: runs as one HTML file without any reference to another one.

A vocabulary travels in few bytes, for the page's script to search: its tokens are sent as the merges that make them,
two ids each, instead of their bytes. The result is compressed, and the browser decompresses it.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from bpeflow import __version__
from bpeflow._util.atomic import atomic_path
from bpeflow._util.text import format_count, format_size, short_names
from bpeflow.config import Settings
from bpeflow.inspection.explanation import Explainer
from bpeflow.inspection.html import TOKENS_CSS, explanation_html
from bpeflow.reporting.charts import Charts, chart_figures
from bpeflow.reporting.data import RunData, load_runs
from bpeflow.run_dir.run_report import RunReport
from bpeflow.vocab import Vocab

#: The most bytes of packed vocabularies. With those of more runs the page would pass 2 MB.
_VOCABULARY_BYTES = 1_400_000

#: Nothing may be loaded, from anywhere, and nothing but the page's own script runs.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

#: Pieces of the sample that are shown, and the characters of each.
_PIECES, _LENGTH = 3, 500


def write_page(folders: Sequence[Path], path: Path, sample: Sequence[str] = ()) -> None:
    """Write a page about one run, or about several side by side.

    Args:
        folders: the folders of finished runs.
        path: the file to write.
        sample: inputs to measure bytes per token on; by default a sample of the runs' own corpora.

    Raises:
        ConfigError: a folder has no finished run, `sample` has no text, or matplotlib is not installed.
        FormatError: a file in a folder is damaged.
    """
    charts = Charts()
    resolved = {str(folder): folder.resolve() for folder in folders}
    names = short_names([str(folder) for folder in resolved.values()])
    runs = load_runs({names[str(folder)]: folder for folder in resolved.values()}, sample)
    page = make_page(runs, charts)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="backslashreplace")


def make_page(runs: Sequence[RunData], charts: Charts) -> str:
    """Return the page of one run or of several side by side."""
    title = "bpeflow: " + ", ".join(run.name for run in runs)
    now = _time(datetime.now(timezone.utc))
    body = "\n".join(
        [
            f"<h1>{escape(title)}</h1>",
            f'<p class="faint">Written by bpeflow {escape(__version__)} on {now}. This file needs no other.</p>',
            _overview(runs),
            _settings(runs),
            "<h2>Charts</h2>",
            f'<div class="charts">{"".join(chart_figures(runs, charts))}</div>',
            *_sources(runs),
            *_samples(runs),
            *_vocabularies(runs),
        ]
    )
    style, script = (_resource(name) for name in ("page.css", "page.js"))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n'
        f"<style>\n{style}{TOKENS_CSS}\n</style>\n</head>\n"
        f"<body>\n{body}\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _resource(name: str) -> str:
    return resources.files("bpeflow.reporting").joinpath(name).read_text(encoding="utf-8")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = True) -> str:
    """Return a table. The first column is text, and the others are figures if `numbers`. Cells are escaped."""
    kinds = ["value", *["number" if numbers else "value"] * (len(header) - 1)]

    def line(tag: str, cells: Sequence[str]) -> str:
        return "".join(f'<{tag} class="{kind}">{escape(cell)}</{tag}>' for kind, cell in zip(kinds, cells, strict=True))

    head = f"<thead><tr>{line('th', header)}</tr></thead>" if any(header) else ""
    lines = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table>{head}<tbody>{lines}</tbody></table></div>'


# ---- what was trained on what ----


def _overview(runs: Sequence[RunData]) -> str:
    rows = []
    for name, figure in _OVERVIEW.items():
        cells = [figure(run) or "" for run in runs]
        if any(cells):
            rows.append([name, *cells])
    header = ["", *(run.name for run in runs)] if len(runs) > 1 else ["", ""]
    return "<h2>Overview</h2>\n" + table(header, rows, numbers=False)


def _corpus(run: RunData) -> str:
    corpus = run.report.corpus
    if corpus is None:
        return ""
    left_out = "".join(
        f", {number:,} {what}"
        for number, what in ((corpus.skipped_documents, "skipped: not UTF-8"), (corpus.bad_records, "bad records"))
        if number
    )
    files, documents = format_count(corpus.files, "file"), format_count(corpus.documents, "document")
    return f"{format_size(corpus.bytes)} in {files}, {documents}{left_out}"


def _pretokens(run: RunData) -> str:
    corpus = run.report.corpus
    return f"{corpus.pretokens:,}, {corpus.distinct_pretokens:,} distinct" if corpus else ""


def _vocabulary(run: RunData) -> str:
    learning = run.report.learning
    if learning is None:
        return "none: the run only counted"
    before = f"{learning.replayed:,} of an earlier tokenizer and " if learning.replayed else ""
    return f"{learning.vocab_size:,} entries: {before}{learning.learned:,} merges"


def _ratio(run: RunData) -> str:
    parts = run.encoded
    if not parts:
        return ""
    return f"{sum(part.bytes for part in parts) / max(sum(part.tokens for part in parts), 1):.3f} on the sample"


def _counting(run: RunData) -> str:
    counting, corpus = run.report.counting, run.report.corpus
    if counting is None or corpus is None:
        return ""
    how = f"{counting.threads} threads" if counting.in_process else _workers(run.report)
    return f"{counting.seconds:,.1f} s, {format_size(corpus.bytes / max(counting.seconds, 1e-9))}/s, {how}"


def _workers(report: RunReport) -> str:
    stages = report.counting.stages if report.counting else {}
    return ", ".join(f"{stage.workers} × {name}" for name, stage in stages.items() if name in ("counter", "merger"))


def _time(time: datetime) -> str:
    return time.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def _finished(run: RunData) -> str:
    finished = run.report.finished
    return _time(datetime.fromisoformat(finished)) if finished else ""


def _learning(run: RunData) -> str:
    learning = run.report.learning
    return f"{learning.seconds:,.1f} s by {learning.backend.name}" if learning else ""


def _machine(run: RunData) -> str:
    versions = run.report.versions
    memory = run.report.peak_memory_bytes
    peak = f", peak {format_size(memory)} in the main process" if memory else ""
    return f"{versions.cores} cores, {versions.platform}, Python {versions.python}{peak}"


_OVERVIEW: Mapping[str, Callable[[RunData], str | None]] = {
    "Corpus": _corpus,
    "Pre-tokens": _pretokens,
    "Pattern": lambda run: _as_text(run.report.settings.get("pattern")),
    "Vocabulary": _vocabulary,
    "Bytes per token": _ratio,
    "Counting": _counting,
    "Learning": _learning,
    "Finished": _finished,
    "bpeflow": lambda run: run.report.bpeflow,
    "Machine": _machine,
}


# ---- settings ----


def _settings(runs: Sequence[RunData]) -> str:
    flat = [dict(_flat(run.report.settings)) for run in runs]
    defaults = dict(_flat(Settings.model_construct().model_dump(mode="json")))
    keys = [key for key in dict.fromkeys(key for values in flat for key in values) if key not in ("resume", "restart")]
    rows = {key: [_as_text(values.get(key)) for values in flat] for key in keys}
    header = ["setting", *(run.name for run in runs)]
    everything = table(header, [[key, *cells] for key, cells in rows.items()], numbers=False)
    if len(runs) > 1:
        chosen = {key: cells for key, cells in rows.items() if len({*cells}) > 1}
        title, none = "Settings that differ", "All settings are the same."
    else:
        chosen = {key: cells for key, cells in rows.items() if cells != [_as_text(defaults.get(key))]}
        title, none = "Settings", "All settings have their defaults."
    listed = (
        table(header, [[key, *cells] for key, cells in chosen.items()], numbers=False) if chosen else f"<p>{none}</p>"
    )
    return f"<h2>{title}</h2>\n{listed}\n<details><summary>All settings</summary>{everything}</details>"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _as_text(value: Any) -> str:
    if value is None or value == []:
        return "–"
    if isinstance(value, list):
        return ", ".join(_as_text(entry) for entry in value)
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {_as_text(entry)}" for key, entry in value.items() if entry not in (None, []))
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- sources ----


def _sources(runs: Sequence[RunData]) -> Iterator[str]:
    described = [run for run in runs if run.report.corpus and run.report.corpus.sources]
    for run in described:
        assert run.report.corpus is not None  # noqa: S101 -- for the type checker
        rows = [
            [
                source.name,
                str(source.weight),
                "all" if source.sample is None else f"a sample of {format_size(source.sample.max_bytes)}",
                f"{source.files:,}",
                format_size(source.bytes),
                f"{source.documents:,}",
                f"{source.skipped_documents + source.bad_records:,}",
            ]
            for source in run.report.corpus.sources
        ]
        of_run = f" of {escape(run.name)}" if len(runs) > 1 else ""
        header = ["source", "weight", "taken", "files", "text", "documents", "left out"]
        yield f"<h2>Sources{of_run}</h2>\n" + table(header, rows)
    measured = [run for run in runs if run.encoded]
    if measured and (len(measured) > 1 or len(measured[0].encoded) > 1):
        rows = []
        for source in dict.fromkeys(part.source for run in measured for part in run.encoded):
            cells = []
            for run in measured:
                parts = [part for part in run.encoded if part.source == source]
                cells += [f"{part.bytes / max(part.tokens, 1):.3f}" for part in parts] or ["–"]
            rows.append([source, *cells])
        yield "<h3>Bytes per token by source</h3>\n" + table(["sample of", *(run.name for run in measured)], rows)


# ---- the vocabulary ----


def _vocabularies(runs: Sequence[RunData]) -> Iterator[str]:
    packed: dict[str, str] = {}
    left_out = []
    for run in runs:
        if run.tokenizer is None:
            continue
        text = packed_vocab(run.tokenizer.vocab, run.merge_counts)
        if sum(map(len, packed.values())) + len(text) > _VOCABULARY_BYTES:
            left_out.append(run.name)
        else:
            packed[run.name] = text
    if not packed and not left_out:
        return
    yield "<h2>Vocabulary</h2>"
    if left_out:
        yield f"<p>Too large for this page: the vocabulary of {escape(', '.join(left_out))}.</p>"
    if not packed:
        return
    options = "".join(f'<option value="vocabulary-{i}">{escape(name)}</option>' for i, name in enumerate(packed))
    yield (
        '<p class="only-print">On a screen it can be searched here.</p>\n<div class="controls">\n'
        f'<select id="vocabulary-of" aria-label="run"{" hidden" if len(packed) == 1 else ""}>{options}</select>\n'
        '<input type="search" id="search" aria-label="search" placeholder="text, bytes as \\xe2\\x80, or id:500">\n'
        '<select id="order" aria-label="order"><option value="id">by id</option>'
        '<option value="shortest">shortest first</option><option value="longest">longest first</option></select>\n'
        '<span id="found" class="faint"></span>\n</div>\n<noscript>Searching needs JavaScript.</noscript>\n'
        '<div id="rows" tabindex="0"><table><thead><tr><th class="number">id</th><th>token</th><th>made of</th>'
        '<th class="number">count</th><th class="number">bytes</th></tr></thead>'
        '<tbody><tr><td id="above" colspan="5"></td></tr></tbody><tbody id="visible"></tbody>'
        '<tbody><tr><td id="below" colspan="5"></td></tr></tbody></table></div>'
    )
    for number, text in enumerate(packed.values()):
        yield f'<script type="text/plain" id="vocabulary-{number}">{text}</script>'


def _samples(runs: Sequence[RunData]) -> Iterator[str]:
    """Yield some pieces of text, each in the tokens of every run."""
    pieces = list(_pieces(runs[0]))
    tokenizers = {run.name: run.tokenizer for run in runs if run.tokenizer is not None}
    if not pieces or not tokenizers:
        return
    yield "<h2>Samples</h2>"
    for piece in pieces:
        for name, tokenizer in tokenizers.items():
            if len(runs) > 1:
                yield f"<h3>{escape(name)}</h3>"
            yield f'<div class="text">{explanation_html(Explainer(tokenizer).explain(piece))}</div>'


def _pieces(run: RunData) -> Iterator[str]:
    texts = [text for texts in run.sample.texts.values() for text in texts if len(text) >= _LENGTH]
    texts = texts or [text for texts in run.sample.texts.values() for text in texts]
    for text in texts[:: max(len(texts) // _PIECES, 1)][:_PIECES]:
        yield text.strip()[:_LENGTH]


def packed_vocab(vocab: Vocab, merge_counts: Sequence[int | None]) -> str:
    """Return a vocabulary as base64 of compressed JSON, which `page.js` reads.

    The JSON has `size`, the number of ids; `tokens`, by id, the bytes of tokens that no merge makes, in hexadecimal;
    `special`, by id, the special tokens; and the columns `left`, `right`, `token` and `count` of the merges, where
    `token` and `count` are differences from one merge to the next. A count that is unknown is -1.
    """
    counts = [-1 if count is None else count for count in merge_counts or [None] * vocab.merge_count]
    merges = vocab.merge_ids.astype(np.int64)
    made = set(merges[:, 2].tolist())
    specials = {i: token for token, i in vocab.special_tokens.items()}
    values: dict[str, Any] = {
        "size": len(vocab),
        "tokens": {i: token.hex() for i, token in enumerate(vocab.tokens) if i not in made and i not in specials},
        "special": specials,
        "left": merges[:, 0].tolist(),
        "right": merges[:, 1].tolist(),
        "token": np.diff(merges[:, 2], prepend=0).tolist(),
        "count": np.diff(np.array(counts, np.int64), prepend=0).tolist(),
    }
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    return b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"), 9)).decode()
