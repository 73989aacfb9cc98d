"""Untrusted configs: plain values only, and no aliases."""

from pathlib import Path

import pytest

from bpeflow.config.reading import load_values, read_yaml
from bpeflow.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: &a [x, x]\nb: [*a, *a]", "an alias repeats line 1", id="an alias"),
        pytest.param("a: &a {x: 1}\nb: {<<: *a}", "an alias repeats line 1", id="a merge key"),
        pytest.param("input: &a [*a]", "an alias repeats line 1", id="a list that contains itself"),
        pytest.param("input: " + "[" * 500_000 + "]" * 500_000, "nested too deeply", id="deep"),
        pytest.param("input: !!python/object/apply:os.system ['touch made']", "tag:yaml.org,2002:python", id="a tag"),
        pytest.param("input: !mine x", "'!mine'", id="a custom tag"),
        pytest.param("seed: 2026-02-31", "day .*range", id="an impossible date"),
        pytest.param(
            "input: [a\nseed: 1", "while .* in line 1, column 8: expected .* in line 2, column 5", id="left open"
        ),
        pytest.param("a: 1\nb: 2\na: 3", "a is given twice, in line 1 and in line 3: remove one", id="a key twice"),
        pytest.param("s: [{x: 1, x: 1}]", "x is given twice, in line 1 and in line 1", id="a key twice, inside"),
        pytest.param("vocab_size: 010000", "010000 is not decimal in YAML", id="octal"),
        pytest.param("separator: 1:30", "1:30 is not decimal in YAML", id="base 60"),
        pytest.param("input: [", "expected the node content", id="malformed"),
    ],
)
def test_malicious_and_malformed_configs_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"config\.yaml is not valid YAML: .*{message}"):
        read_yaml(tmp_path / "config.yaml")


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"/dev/zero is not a config: it has more than 1,048,576 characters"):
        read_yaml(Path("/dev/zero"))


def test_a_config_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"input: \xff")
    with pytest.raises(ConfigError, match=r"config\.yaml is not valid YAML: .*invalid start byte"):
        read_yaml(tmp_path / "config.yaml")


@pytest.mark.parametrize("section", ["monitor: true", "monitor: {enabled: true}"])
def test_a_dotted_key_overrides_its_section(tmp_path: Path, section: str) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(f"monitor.enabled: false\n{section}\nmonitor.interval: 2\n", encoding="utf-8")
    assert load_values(config)["monitor"] == {"enabled": False, "interval": 2}
