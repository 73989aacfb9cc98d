"""JSON with a checksum of its own: any change is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.errors import FormatError
from bpeflow.report.run import read_run, write_run
from bpeflow.sealed import is_sealed, sealed, unsealed

BODIES = st.dictionaries(
    st.text(), st.recursive(st.none() | st.integers() | st.floats(allow_nan=False) | st.text(), st.lists, max_leaves=5)
).filter(lambda body: not is_sealed(body))


@pytest.mark.slow
@given(BODIES)
def test_what_is_sealed_comes_back_through_json(body: dict[str, object]) -> None:
    assert unsealed(json.loads(json.dumps(sealed(body)))) == body


def test_tuples_and_names_that_are_not_utf8_do_no_harm() -> None:
    body = {"files": ("a", "b\udcff"), "sizes": {1: 2}}
    assert unsealed(json.loads(json.dumps(sealed(body)))) == {"files": ["a", "b\udcff"], "sizes": {"1": 2}}


def test_a_change_is_noticed() -> None:
    with pytest.raises(ValueError, match="checksum does not fit"):
        unsealed({**sealed({"documents": 3}), "documents": 4})
    with pytest.raises(ValueError, match="checksum does not fit"):
        unsealed({"documents": 3})


def test_a_report_that_was_changed_is_refused(tmp_path: Path) -> None:
    report = {"settings": {"input": ["b\udcff"]}, "corpus": {"documents": 3}}
    write_run(tmp_path / "run.json", report)
    assert read_run(tmp_path) == report
    text = (tmp_path / "run.json").read_text(encoding="utf-8")
    (tmp_path / "run.json").write_text(text.replace("documents", "dokuments"), encoding="utf-8")
    with pytest.raises(FormatError, match=r"run\.json: was changed or damaged after the run"):
        read_run(tmp_path)
