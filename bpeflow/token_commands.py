"""What the commands do that use a tokenizer: encode, decode, evaluate. Apart from those that train, to start fast."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bpeflow.atomic import atomic_path
from bpeflow.terminal import observing, print_decoded, print_encoded, summary_console, table_console
from bpeflow.tokenizer import Tokenizer
from bpeflow.tokenizer.dataset import decode_file, encode_file


def encode(tokenizer: Path, inputs: Sequence[str], out: Path, quiet: bool, **options: Any) -> int:
    """Encode a corpus to a token file. `options`: those of `encode_file`."""
    with observing(quiet) as observer:
        corpus = encode_file(Tokenizer.load(tokenizer), inputs, out, progress=observer.encoding, **options)
    print_encoded(summary_console(quiet), corpus)
    return 0


def decode(tokenizer: Path, source: Path, out: Path, any_tokenizer: bool, quiet: bool) -> int:
    """Decode a token file to text."""
    with observing(quiet) as observer:
        loaded = Tokenizer.load(tokenizer)
        decoded = decode_file(loaded, source, out, any_tokenizer=any_tokenizer, progress=observer.decoding)
    print_decoded(summary_console(quiet), decoded, out)
    return 0


def evaluate(
    tokenizers: Sequence[Path], inputs: Sequence[str], json_path: Path | None, quiet: bool, **options: Any
) -> int:
    """Measure tokenizers on corpora, every one on every one. `options`: those of `evaluate_all`."""
    from bpeflow.evaluation_table import make_tables
    from bpeflow.tokenizer.evaluate import describe, evaluate_all

    with observing(quiet) as observer:
        loaded = {str(path): Tokenizer.load(path) for path in tokenizers}
        evaluated = evaluate_all(loaded, inputs, progress=observer.encoding, **options)
    if json_path is not None:
        text = json.dumps(describe(evaluated, loaded), indent=2, ensure_ascii=False) + "\n"
        with atomic_path(json_path) as temporary:
            temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    console = table_console()
    for table in make_tables(evaluated, loaded):
        console.print(table)
    return 0
