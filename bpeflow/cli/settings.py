"""Flags of settings, which come from the settings' models."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel

from bpeflow.cli.parser import Parser, add_quiet_flag
from bpeflow.cli.progress import set_up_logging
from bpeflow.config import COUNT_ONLY, CorpusSettings, Settings, all_settings, override
from bpeflow.config.reading import ARGUMENTS, parse_yaml, read_config
from bpeflow.errors import ConfigError

log = logging.getLogger(__name__)

#: What the destination of a setting's flag begins with; its key follows.
SETTING = "setting "

#: Why a command that learns from counts refuses a setting of counting.
NOT_REPEATED = "concerns counting, which is not repeated: the counts have their own; train again for another value"

#: The group of settings that describe a corpus, which commands other than train take from its config, too.
_CORPUS = "corpus"


def add_settings(parser: Parser, model: type[BaseModel], without: Collection[str] = (), title: str = "") -> None:
    """Add a flag for each setting of a model, with the setting's own description as its help.

    Args:
        parser: the parser.
        model: the model.
        without: top-level names of settings to leave out.
        title: the heading in the help; by default each group has its own.
    """
    groups: dict[str, Any] = {}
    for setting in sorted(all_settings(model), key=lambda setting: setting.group != _CORPUS):
        heading = title or setting.group
        if not setting.flags or setting.key.partition(".")[0] in without:
            continue
        if heading not in groups:
            groups[heading] = parser.add_argument_group(heading)
        kind: dict[str, Any] = {"metavar": setting.metavar}
        if setting.is_switch:
            kind = {"action": "store_const", "const": True}
        elif setting.is_list:
            # Not if one value may stand for the list, and never the input.
            may_be_empty = get_origin(setting.annotation) is tuple and setting.key != "input"
            kind |= {"nargs": "*" if may_be_empty else "+", "action": "extend"}
        groups[heading].add_argument(
            *setting.flags,
            dest=f"{SETTING}{setting.key}",
            default=argparse.SUPPRESS,
            help=setting.help.replace("%", "%%"),
            **kind,
        )


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that flags give, by key; `--set` first, then flags of their own."""
    given = {key.removeprefix(SETTING): value for key, value in vars(options).items() if key.startswith(SETTING)}
    return {**dict(getattr(options, "assignments", ())), **given}


def add_run_flags(parser: Parser, without: Collection[str] = ()) -> None:
    """Add the flags of commands that learn merges: ``--config``, ``--set``, and all settings but `without`."""
    add_settings(parser, Settings, without)
    parser.elsewhere = {
        key: f"give it by --set {key}=VALUE, or in a config" for key in Settings.model_fields if key not in without
    }
    parser.elsewhere |= dict.fromkeys(COUNT_ONLY.intersection(without), f"it {NOT_REPEATED}")
    group = parser.add_argument_group("other ways to give settings")
    group.add_argument("--config", metavar="FILE", type=Path, help="YAML config; flags override it")
    group.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="assignments", type=_assignment,
        help="override any setting, e.g. monitor.interval=2; the value is YAML; repeatable",
    )  # fmt: skip
    add_quiet_flag(parser)


def _assignment(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"need KEY=VALUE, found {text!r}")
    key = key.replace("-", "_")
    try:
        return key, parse_yaml(value)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(f"{key}: {value!r} is not valid YAML ({error})") from error


# ---- a corpus ----


def add_corpus_flags(parser: Parser, model: type[CorpusSettings] = CorpusSettings) -> None:
    """Add the flags of settings that describe a corpus, for `corpus_of`, after the parser's other flags."""
    add_settings(parser, model)
    parser.elsewhere = dict.fromkeys(model.model_fields, "give it in a config, by --config")
    parser.in_config = [flag for flag in parser.arguments if flag.option_strings and flag.dest in ARGUMENTS]
    also = f" (also {', '.join(flag.dest for flag in parser.in_config)})" if parser.in_config else ""
    parser.add_argument(
        "--config", metavar="FILE", type=Path,
        help=f"YAML config of these settings{also}, or of train for its corpus; flags override it",
    )  # fmt: skip


def corpus_of(
    options: argparse.Namespace, model: type[CorpusSettings] = CorpusSettings, *, required: bool = True
) -> dict[str, Any]:
    """Return the settings that flags give, over those of ``--config``: its corpus, engine, and what train has not.

    Settings of other commands are ignored, so that one config serves all. ``--input`` replaces all sources of the
    config. The value of `inputs` may have sources as mappings. Raises `ConfigError`.
    """
    config = read_config(options.config)
    ignored = Settings.model_fields.keys() - CorpusSettings.model_fields.keys() - {"engine"}
    known = {*model.model_fields, *(vars(options) if "tokenizer" in config else ())}  # not a config of train alone
    if shared := [key for key in config if key in known & ignored]:
        set_up_logging(options.quiet)
        log.info(
            "%s: taken for settings of train, and ignored; as flags they take effect: %s",
            options.config,
            ", ".join(shared),
        )
    values = {key: config[key] for key in config if key in model.model_fields.keys() - ignored}
    values = override(values, settings_of(options))
    inputs: list[Any] = []
    for given in (values.pop("input", []), values.pop("sources", [])):
        inputs += given if isinstance(given, list) else [given]
    if required and not inputs:
        raise ConfigError("missing: --input, or --config with an input")
    return {**values, "inputs": inputs}
