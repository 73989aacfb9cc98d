"""Configs that nobody trusts: plain values, and no more than a config has."""

from pathlib import Path

import pytest

from bpeflow._util.yaml import parse_yaml, read_yaml
from bpeflow.errors import ConfigError


def levels(first: str, line: str) -> str:
    """Twelve lines, of which each stands for ten times what the line before it does."""
    return f"a0: &a0 {first}\n" + "".join(
        line.format(f"a{level}", ", ".join([f"*a{level - 1}"] * 10)) for level in range(1, 12)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(levels("[x]", "{0}: &{0} [{1}]\n"), "more than 100,000 values", id="lists of aliases"),
        pytest.param(levels("{x: 1}", "{0}: &{0} {{<<: [{1}]}}\n"), "more than 100,000 values", id="merge keys"),
        pytest.param("input: &a [*a]\n", "more than 100,000 values", id="a list in itself"),
        pytest.param("input: " + "[" * 10_000, "nested too deeply", id="deep"),
        pytest.param("input: !!python/object/apply:os.system ['touch made']", "tag:yaml.org,2002:python", id="a tag"),
        pytest.param("input: !mine x", "'!mine'", id="a tag of one's own"),
        pytest.param("seed: 2026-02-31", "day is out of range", id="no such day"),
        pytest.param("input: [", "expected the node content", id="malformed"),
    ],
)
def test_what_no_config_has_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"config\.yaml is not valid YAML: .*{message}"):
        read_yaml(tmp_path / "config.yaml")


def test_aliases_and_merge_keys_are_plain_yaml() -> None:
    values = parse_yaml("base: &base {weight: 2}\nsources:\n  - {<<: *base, name: a}\n  - *base\n")
    assert values["sources"] == [{"weight": 2, "name": "a"}, {"weight": 2}]


def test_a_file_without_end_is_no_config() -> None:
    with pytest.raises(ConfigError, match=r"/dev/zero is no config: it has more than 1,048,576 characters"):
        read_yaml(Path("/dev/zero"))


def test_what_is_not_utf8_is_no_config(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"input: \xff")
    with pytest.raises(ConfigError, match=r"config\.yaml is not valid YAML: .*invalid start byte"):
        read_yaml(tmp_path / "config.yaml")
