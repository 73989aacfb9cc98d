"""Untrusted configs: plain values only, and a bounded number of them."""

from pathlib import Path

import pytest

from bpeflow._util.yaml import parse_yaml, read_yaml
from bpeflow.errors import ConfigError


def levels(first: str, line: str) -> str:
    """Return twelve lines, each of which expands to ten times the values of the line before it."""
    return f"a0: &a0 {first}\n" + "".join(
        line.format(f"a{level}", ", ".join([f"*a{level - 1}"] * 10)) for level in range(1, 12)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(levels("[x]", "{0}: &{0} [{1}]\n"), "more than 100,000 values", id="lists of aliases"),
        pytest.param(levels("{x: 1}", "{0}: &{0} {{<<: [{1}]}}\n"), "more than 100,000 values", id="merge keys"),
        pytest.param("input: &a [*a]\n", "more than 100,000 values", id="a list that contains itself"),
        pytest.param("input: " + "[" * 10_000, "nested too deeply", id="deep"),
        pytest.param("input: !!python/object/apply:os.system ['touch made']", "tag:yaml.org,2002:python", id="a tag"),
        pytest.param("input: !mine x", "'!mine'", id="a custom tag"),
        pytest.param("seed: 2026-02-31", "day is out of range", id="an impossible date"),
        pytest.param("input: [", "expected the node content", id="malformed"),
    ],
)
def test_malicious_and_malformed_configs_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"config\.yaml is not valid YAML: .*{message}"):
        read_yaml(tmp_path / "config.yaml")


def test_aliases_and_merge_keys_are_supported() -> None:
    values = parse_yaml("base: &base {weight: 2}\nsources:\n  - {<<: *base, name: a}\n  - *base\n")
    assert values["sources"] == [{"weight": 2, "name": "a"}, {"weight": 2}]


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"/dev/zero is not a config: it has more than 1,048,576 characters"):
        read_yaml(Path("/dev/zero"))


def test_a_config_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"input: \xff")
    with pytest.raises(ConfigError, match=r"config\.yaml is not valid YAML: .*invalid start byte"):
        read_yaml(tmp_path / "config.yaml")
