"""JSON objects with a checksum: any change is detected."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow._util.atomic import checksummed, verified

BODIES = st.dictionaries(
    st.text(), st.recursive(st.none() | st.integers() | st.floats(allow_nan=False) | st.text(), st.lists, max_leaves=5)
).filter(lambda body: "sha256" not in body)


@pytest.mark.slow
@given(BODIES)
def test_a_checksummed_object_survives_json(body: dict[str, object]) -> None:
    assert verified(json.loads(json.dumps(checksummed(body)))) == body


def test_tuples_integer_keys_and_names_that_are_not_utf8_are_allowed() -> None:
    body = {"files": ("a", "b\udcff"), "sizes": {1: 2}}
    assert verified(json.loads(json.dumps(checksummed(body)))) == {"files": ["a", "b\udcff"], "sizes": {"1": 2}}


def test_a_change_and_a_missing_checksum_are_detected() -> None:
    with pytest.raises(ValueError, match="checksum does not match"):
        verified({**checksummed({"documents": 3}), "documents": 4})
    with pytest.raises(ValueError, match="checksum does not match"):
        verified({"documents": 3})
