from __future__ import annotations

import importlib.metadata
import re

import pytest

from bpeflow.pretokenize.regex import unicode_version


def test_the_version_is_the_one_that_the_regex_module_names_in_its_notes() -> None:
    """Fails when `regex` has moved on to a version of Unicode that the table of probes does not have."""
    notes = importlib.metadata.metadata("regex").get_payload()
    stated = re.search(r"supports Unicode (\d+\.\d+\.\d+)", str(notes))
    if stated is None:
        pytest.skip("the installed regex module does not state its version of Unicode")
    assert unicode_version() == stated[1]
