"""JSON with a checksum of its own: any change is noticed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow._util.checksummed import checksummed, has_checksum, verified

BODIES = st.dictionaries(
    st.text(), st.recursive(st.none() | st.integers() | st.floats(allow_nan=False) | st.text(), st.lists, max_leaves=5)
).filter(lambda body: not has_checksum(body))


@given(BODIES)
def test_what_is_sealed_comes_back_through_json(body: dict[str, object]) -> None:
    assert verified(json.loads(json.dumps(checksummed(body)))) == body


def test_tuples_and_names_that_are_not_utf8_do_no_harm() -> None:
    body = {"files": ("a", "b\udcff"), "sizes": {1: 2}}
    assert verified(json.loads(json.dumps(checksummed(body)))) == {"files": ["a", "b\udcff"], "sizes": {"1": 2}}


def test_a_change_is_noticed() -> None:
    with pytest.raises(ValueError, match="checksum does not fit"):
        verified({**checksummed({"documents": 3}), "documents": 4})
    with pytest.raises(ValueError, match="checksum does not fit"):
        verified({"documents": 3})
