"""Settings: defaults, overrides, and errors that say which key is wrong and which was meant."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from bpeflow.cli.config import as_yaml
from bpeflow.config import (
    CountSettings,
    Setting,
    Settings,
    SourceSettings,
    all_settings,
    load_values,
    make_settings,
    override,
)
from bpeflow.config.encoding import EncodeSettings
from bpeflow.errors import ConfigError, SettingsError
from bpeflow.run_dir.resume import make_run_settings

CONFIGS = Path(__file__).parents[2] / "configs"
SMALL = {"input": "a.txt", "vocab_size": 300}


def test_models_are_complete_when_they_are_imported() -> None:
    """Ctrl-C while pydantic completes a model on its first use would leave it unusable."""
    models = [CountSettings, Settings, SourceSettings, EncodeSettings]
    assert all(model.__pydantic_complete__ for model in models)
    assert not any("defer_build" in model.model_config for model in models)


def test_settings_as_json() -> None:
    values = {**SMALL, "out_dir": "runs/a", "memory_limit": "3gb", "sources": [{"paths": "x", "max_bytes": "3mb"}]}
    settings = Settings(**values)
    assert settings.to_json() == settings.model_dump(mode="json")
    assert settings.to_json({"out_dir", "memory_limit"}) == {"out_dir": "runs/a", "memory_limit": 3_000_000_000}


def load_settings(path: Path, overrides: dict[str, Any] | None = None) -> Settings:
    return make_run_settings(load_values(path, overrides))


def write(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_config_becomes_settings(tmp_path: Path) -> None:
    settings = load_settings(
        write(tmp_path, "input: [a, b]\nvocab_size: 1000\nchunk_size: 8mb\nmonitor: {interval: 2}")
    )
    assert settings.input == ("a", "b")
    assert settings.chunk_size == 8_000_000
    assert settings.monitor.interval == 2
    assert settings.sizes == (1000,)
    assert settings.document_separator == "<|endoftext|>"
    assert settings.model_copy(update={"separator": ""}).document_separator is None


def test_overrides_go_over_the_file_and_reach_into_sections(tmp_path: Path) -> None:
    path = write(tmp_path, "input: a\nvocab_sizes: [300, 400]\nmonitor: {enabled: true}")
    settings = load_settings(path, {"vocab_size": 500, "monitor.interval": 1, "engine.retries": 2})
    assert settings.sizes == (500,)
    assert settings.monitor.enabled
    assert settings.monitor.interval == 1
    assert settings.engine.retries == 2


def test_an_input_replaces_the_sources_of_a_config(tmp_path: Path) -> None:
    path = write(tmp_path, "sources: [{paths: a}, {paths: b, weight: 2}]\nvocab_size: 300")
    assert [source.paths for source in load_settings(path, {"input": "c"}).all_sources] == [("c",)]
    path = write(tmp_path, "input: a\nsources: [{paths: b}]\nvocab_size: 300")
    assert [source.paths for source in load_settings(path, {"sources": [{"paths": "c"}]}).all_sources] == [("c",)]


def test_a_config_may_have_dotted_keys(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, "input: a\nvocab_size: 300\nmonitor: true\nmonitor.interval: 3"))
    assert settings.monitor.enabled
    assert settings.monitor.interval == 3
    path = write(tmp_path, "input: a\nvocab_size: 300\nelephants.x: 3")
    with pytest.raises(ConfigError, match=f"{path}: unknown setting elephants.x .`bpeflow config` lists"):
        load_settings(path)


def test_the_report_of_a_run_is_recognised(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps({"schema_version": 2, "settings": {}, "files": []}))
    with pytest.raises(ConfigError, match=r"is the report of a run, not a config: .*`bpeflow merge --counts") as caught:
        load_settings(path)
    assert "\n" not in str(caught.value)


def test_override_leaves_its_argument_alone() -> None:
    values = {"monitor": {"enabled": True}}
    assert override(values, {"monitor.interval": 1}) == {"monitor": {"enabled": True, "interval": 1}}
    assert values == {"monitor": {"enabled": True}}


def test_the_standard_library_has_a_placeholder() -> None:
    settings = make_settings(Settings, {**SMALL, "input": "{stdlib}/*.py"})
    assert settings.input == (sysconfig.get_paths()["stdlib"] + "/*.py",)


def test_several_sizes_are_sorted() -> None:
    assert make_settings(Settings, {"input": "a", "vocab_sizes": [32000, 8000, 8000]}).sizes == (8000, 32000)


@pytest.mark.parametrize(("text", "entries"), [("32k", 32_000), ("1M", 1_000_000), ("32_000", 32_000), ("300", 300)])
def test_vocabulary_sizes_are_written_as_people_say_them(tmp_path: Path, text: str, entries: int) -> None:
    assert load_settings(write(tmp_path, f"input: a\nvocab_size: {text}")).vocab_size == entries
    assert make_settings(Settings, {"input": "a", "vocab_sizes": text}).sizes == (entries,)


@pytest.mark.parametrize("text", ["k", "1.5k", "32kb", "--1k", "", "9" * 5000, "100m m"])
def test_a_size_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="vocab_size: need a whole number such as 32000, 32k or 1m"):
        make_settings(Settings, {"input": "a", "vocab_size": text})


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        make_settings(Settings, SMALL).vocab_size = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"vocab_sise": 1}, r"unknown setting vocab_sise \(did you mean vocab_size\?\)"),
        ({"monitor": {"intervall": 1}}, r"unknown setting monitor\.intervall \(did you mean monitor\.interval\?\)"),
        ({"do_monitor": True}, r"unknown setting do_monitor \(did you mean monitor\.enabled\?\)"),
        (
            {"sources": [{"paths": "a", "weigth": 0.3}]},
            r"unknown setting sources\.0\.weigth \(did you mean sources\.weight",
        ),
        ({"vocab_size": True}, "vocab_size: need a whole number such as 32000, 32k or 1m, found True"),
        ({"monitor": 5}, "monitor: need lines of the form `key: value` below it, found 5"),
        ({"shard_tokens": 1}, r"unknown setting shard_tokens \(a setting of encode\)"),
        ({"zzz": 1}, r"unknown setting zzz \(`bpeflow config` lists all settings\)"),
        ({"vocab_size": 256}, "vocab_size 256 is too small: 256 bytes and 1 special token"),
        ({"vocab_size": 100}, "vocab_size: must be at least 256, found 100"),
        ({"monitor": {"interval": 0}}, "monitor.interval: must be greater than 0, found 0"),
        ({"threads": 5000}, "threads: must be at most 4096, found 5000"),
        ({"threads": 1.5}, "threads: must be a valid integer, got a number with a fractional part, found 1.5"),
        ({"resume": "maybe"}, "resume: must be a valid boolean, found 'maybe'"),
        ({"memory_limit": "much"}, "memory_limit: need a size such as 8mb, found 'much'"),
        ({"invalid_utf8": "ignore"}, "invalid_utf8: must be 'error', 'replace' or 'skip', found 'ignore'"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"vocab_sizes": [300]}, "give one of the two"),
        ({"input": []}, "input is missing: .*at least one"),
        ({"input": 3.5}, "input: must be a valid list, found 3.5"),
        ({"init_from": 3}, "init_from: need the name of a file or a folder, found 3"),
        (
            {"input": [{"content": "low"}]},
            "a source needs paths, .* documents in Python need text_field, .*, found {'content'",
        ),
        ({"chunk_size": "lots"}, "chunk_size"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"num_counter": 0}, "num_counter"),
        ({"tie_break": "random"}, "tie_break"),
        ({"special_tokens": ["a", "b", "a"]}, "special_tokens: 'a' is given twice"),
        (
            {"special_tokens": "<|a|>, <|b|>"},
            r"looks like several tokens: give each by itself, as '<\|a\|>' and '<\|b\|>'",
        ),
        ({"special_tokens": "<s> </s>"}, "'<s> </s>' looks like several tokens"),
        ({"special_tokens": ["<s>,[PAD]", "x"]}, "'<s>,.PAD.' looks like several tokens"),
        ({"engine": "rai"}, "engine.kind: must be 'local' or 'ray', found 'rai'"),
        ({"special_tokens": [""]}, "special_tokens: a special token must not be an empty string"),
        ({"special_tokens": 5}, "special_tokens: special token 5 is int, not str"),
        ({"special_tokens": [b"<s>"]}, "special_tokens: special token b'<s>' is bytes, not str"),  # as in Tokenizer
        ({"special_tokens": ["<s>\ud800"]}, "has a lone surrogate"),
        ({"special_tokens": {"a"}}, "a set has no order"),
        ({"vocab_size": 2**32 - 1}, "vocab_size: must be less than 4,294,967,295"),
    ],
    ids=str,
)
def test_wrong_settings_are_named(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        make_settings(Settings, {**SMALL, **values})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("engine: ray", {"engine": {"kind": "ray"}}),
        ("monitor: true", {"monitor": {"enabled": True}}),
        ("output: huggingface", {"output": {"formats": ["huggingface"]}}),
        ("output: [tiktoken]", {"output": {"formats": ["tiktoken"]}}),
    ],
)
def test_one_value_in_place_of_a_section_is_its_main_setting(
    tmp_path: Path, text: str, expected: dict[str, object]
) -> None:
    path = write(tmp_path, f"input: a\nvocab_size: 300\n{text}")
    assert load_settings(path) == make_settings(Settings, {"input": "a", "vocab_size": 300, **expected})


def test_a_flag_in_a_section_keeps_the_one_value_of_the_config(tmp_path: Path) -> None:
    path = write(tmp_path, "input: a\nvocab_size: 300\nengine: ray")
    engine = load_settings(path, {"engine.workers": 3}).engine
    assert (engine.kind, engine.workers) == ("ray", 3)


@pytest.mark.parametrize("tokens", [",,", "a,b", ["a,b", "<c>"], ["<|a,b|>"], ["<|a b|>"]])
def test_a_comma_can_be_part_of_a_special_token(tokens: object) -> None:
    assert make_settings(Settings, {**SMALL, "special_tokens": tokens}).special_tokens


def test_a_missing_input_is_named() -> None:
    with pytest.raises(ConfigError, match="input is missing: name at least one file"):
        make_settings(CountSettings, {})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("input: [a", "not valid YAML"),
        ("- a\n- b", "key: value"),
        ("input: !!python/object/apply:os.system ['true']", "not valid YAML"),
    ],
)
def test_malformed_files_are_refused_with_their_path(tmp_path: Path, text: str, complaint: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=complaint) as caught:
        load_settings(path)
    assert str(path) in str(caught.value)


def test_every_wrong_value_has_a_line(tmp_path: Path) -> None:
    path = write(tmp_path, "input: a\nvocab_size: 300\nmonitor: {interval: -1}")
    with pytest.raises(SettingsError) as caught:
        load_settings(path, {"vocab_size": "8kk", "monitor.intervall": 3})
    lines = sorted(str(caught.value).splitlines())
    assert [line.partition(" ")[0] for line in lines] == ["monitor.interval:", "unknown", "vocab_size:"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the config .*none\.yaml: No such file"):
        load_settings(tmp_path / "none.yaml")


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_configs_are_valid(path: Path) -> None:
    assert load_settings(path).out_dir is not None


def test_every_setting_is_described() -> None:
    described = list(all_settings(Settings))
    assert {setting.key.partition(".")[0] for setting in described} == set(Settings.model_fields)
    for setting in [*described, *all_settings(SourceSettings)]:
        assert setting.description, setting.key
        assert not setting.description.endswith("."), setting.key
        assert setting.extra["example"] is not None, setting.key


@pytest.mark.parametrize("setting", [s for s in all_settings(Settings) if s.group], ids=lambda setting: setting.key)
def test_the_examples_of_settings_are_valid(setting: Setting) -> None:
    required: dict[str, Any] = {"input": "a.txt", "vocab_size": 32000, "out_dir": "run"}
    if setting.key == "vocab_sizes":
        required.pop("vocab_size")
    if setting.key.startswith("output."):
        required["output"] = {"formats": ["huggingface"]}
    if setting.key in ("superword_pattern", "transition_size", "max_words", "colon_rule"):
        required["superwords"] = True
    make_settings(Settings, override(required, {setting.key: setting.extra["example"]}))


def test_all_settings_can_be_uncommented() -> None:
    """Apart from those that exclude each other, and whose examples need another setting."""
    lines = [line.removeprefix("# ") for line in as_yaml().splitlines()]
    keys = {setting.key.rpartition(".")[2] for setting in all_settings(Settings)} | {"monitor", "output", "engine"}
    values = yaml.safe_load("\n".join(line for line in lines if line.strip().partition(":")[0] in keys))
    assert set(values) == set(Settings.model_fields)
    for key in ("vocab_sizes", "restart", "init_from", "skip_merge"):
        values.pop(key)
    make_settings(Settings, values)
