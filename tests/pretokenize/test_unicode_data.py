from __future__ import annotations

import importlib.metadata
import re

import pytest

from bpeflow.pretokenize.regex import unicode_version


def test_the_unicode_version_is_the_one_in_the_release_notes_of_the_regex_module() -> None:
    """Fails when `regex` supports a newer version of Unicode than the table in the code knows."""
    notes = importlib.metadata.metadata("regex").get_payload()
    stated = re.search(r"supports Unicode (\d+\.\d+\.\d+)", str(notes))
    if stated is None:
        pytest.skip("the installed regex module does not state its version of Unicode")
    assert unicode_version() == stated[1]
