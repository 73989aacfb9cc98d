"""The code blocks of docs/transformers.md run, and the config is valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from bpeflow._util.delimiters import BEGIN_OF_TEXT, END_OF_TEXT, PADDING
from bpeflow.config import OutputSettings, Settings, make_settings
from bpeflow.formats.transformers import CHAT_TEMPLATES

PAGE = (Path(__file__).parents[1] / "docs" / "transformers.md").read_text(encoding="utf-8")


def test_the_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("transformers", "jinja2"):
        pytest.importorskip(library, reason=f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    Path("corpus.txt").write_text("To be, or not to be: that is the question.<|endoftext|>" * 9, encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for number, block in enumerate(blocks):
        exec(compile(block, f"transformers.md, block {number + 1}", "exec"), {})


def test_the_config_is_valid() -> None:
    [config] = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    output = make_settings(Settings, yaml.safe_load(config)).output
    assert (output.eos, output.pad) == ("<|im_end|>", "<|endoftext|>")


def test_all_options_defaults_and_templates_are_listed() -> None:
    names = {*OutputSettings.model_fields, *CHAT_TEMPLATES}
    tokens = {*END_OF_TEXT, *BEGIN_OF_TEXT, *PADDING}
    tokens |= {token for named in CHAT_TEMPLATES.values() for token in named.special_tokens}
    assert {word for word in names - {"formats", "report"} if f"`{word}`" not in PAGE} == set()
    assert {token for token in tokens if f"`{token}`" not in PAGE.replace("\\|", "|")} == set()
