"""The folder that ``AutoTokenizer.from_pretrained`` of HuggingFace transformers loads, in its versions 4 and 5.

``tokenizer.json`` determines the ids. The two files beside it name the special tokens that have a role (end of text,
padding …), the class, the chat template and the longest input. Source: ``_from_pretrained`` in transformers 4.57 and
5.23. Both read ``special_tokens_map.json`` only if ``tokenizer_config.json`` has no `added_tokens_decoder`; older
tools read it, too. Newer versions save a chat template to ``chat_template.jinja``, which takes precedence over the one
in ``tokenizer_config.json``. All versions read the latter, so `save` writes that.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpeflow._util.atomic import write_text
from bpeflow._util.delimiters import BEGIN_OF_TEXT, PADDING, end_of_document
from bpeflow._util.text import short_repr, suggestion
from bpeflow.config import TransformersSettings
from bpeflow.errors import ConfigError, FormatError
from bpeflow.formats import huggingface
from bpeflow.formats.published import CONFIG_FILE
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.formats.untrusted import read_json, read_text

SPECIAL_TOKENS_FILE = "special_tokens_map.json"
_TEMPLATE_FILE = "chat_template.jinja"

#: The special tokens that transformers has a use for: the end, the beginning and the padding of a text.
_ROLES = ("eos", "bos", "pad")

#: `model_max_length` of a tokenizer without limit, in all versions.
_NO_LIMIT = int(1e30)


def save(spec: TokenizerSpec, folder: Path, options: TransformersSettings | None) -> list[Path]:
    """Write a folder for transformers and return the paths of its files, ``tokenizer.json`` first.

    Raises:
        ConfigError: an option does not fit the tokenizer. Nothing has been written.
        FormatError: as for `huggingface.save`, or the chat template cannot be read.
    """
    options = options or TransformersSettings()
    roles = _roles(spec, options)
    config = _config(spec, options, roles)
    template = _put_first(roles["bos"], spec) if options.add_bos else None
    paths = huggingface.save(spec, folder / huggingface.FILE, template)
    for name, content in ((CONFIG_FILE, config), (SPECIAL_TOKENS_FILE, _special_tokens(spec, roles))):
        write_text(folder / name, json.dumps(content, ensure_ascii=False, indent=2) + "\n")
        paths.append(folder / name)
    return paths


def options_of(folder: Path, special_tokens: Collection[str]) -> dict[str, Any]:
    """Return the options for `save` that a folder for transformers has, as far as its files can be read.

    A role of a token that is not one of the special tokens is left out.
    """
    content: dict[str, Any] = {}
    with suppress(FormatError):
        content = read_json(folder / CONFIG_FILE).value
    with suppress(FormatError):
        content["chat_template"] = read_text(folder / _TEMPLATE_FILE)
    options = {}
    for role in _ROLES:
        token = content.get(f"{role}_token")
        if isinstance(token, dict):
            token = token.get("content")
        if token in special_tokens:
            options[role] = token
    template, length = content.get("chat_template"), content.get("model_max_length")
    if isinstance(template, str) and template:
        options["chat_template"] = template
    if isinstance(length, int) and 1 <= length < _NO_LIMIT:
        options["max_length"] = length
    return options


def _roles(spec: TokenizerSpec, options: TransformersSettings) -> dict[str, str]:
    """Return the special token of each role that has one."""
    specials = spec.vocab.special_tokens
    defaults = {
        "eos": end_of_document(specials),
        "bos": next((token for token in BEGIN_OF_TEXT if token in specials), None),
        "pad": next((token for token in PADDING if token in specials), None),
    }
    roles = {}
    for role, default in defaults.items():
        given: str | None = getattr(options, role)
        if given is not None and given not in specials:
            hint = suggestion(given, specials) or f"; it has {', '.join(map(short_repr, [*specials][:10])) or 'none'}"
            raise ConfigError(f"{role}: {short_repr(given)} is not a special token of the tokenizer{hint}")
        if token := given or default:
            roles[role] = token
    if options.add_bos and "bos" not in roles:
        raise ConfigError("add_bos: there is no token to add; give bos, a special token of the tokenizer")
    return roles


def _special_tokens(spec: TokenizerSpec, roles: dict[str, str]) -> dict[str, Any]:
    """Return the content of ``special_tokens_map.json``, which is a part of the config, too.

    Version 5 calls the tokens without a role `extra_special_tokens` and reads the older name as well, while version 4
    fails to load a list of the newer name.
    """
    others = [token for token in spec.vocab.special_tokens if token not in roles.values()]
    return {
        **{f"{role}_token": token for role, token in roles.items()},
        **({"additional_special_tokens": others} if others else {}),
    }


def _config(spec: TokenizerSpec, options: TransformersSettings, roles: dict[str, str]) -> dict[str, Any]:
    config = {
        "added_tokens_decoder": {
            str(token.pop("id")): dict(sorted(token.items())) for token in huggingface.added_tokens(spec.vocab)
        },
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],  # version 4 adds token_type_ids, which few models take
        "model_max_length": options.max_length or _NO_LIMIT,
        "tokenizer_class": "PreTrainedTokenizerFast",  # version 5 has renamed it, and knows both names
        **_special_tokens(spec, roles),
    }
    if options.chat_template is not None:
        config["chat_template"] = read_chat_template(options.chat_template, spec.vocab.special_tokens)
    return config


def _put_first(token: str, spec: TokenizerSpec) -> dict[str, Any]:
    """Return a post-processor that puts a special token before each text."""

    def text(name: str, type_id: int) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": token, "type_id": type_id}}, {"Sequence": {"id": name, "type_id": type_id}}]

    ids = {"id": token, "ids": [spec.vocab.special_tokens[token]], "tokens": [token]}
    return {
        "type": "TemplateProcessing",
        "single": text("A", 0),
        "pair": text("A", 0) + text("B", 1),
        "special_tokens": {token: ids},
    }


# ---- chat templates ----


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template and the special tokens that it cannot do without."""

    template: str
    special_tokens: tuple[str, ...]


#: Chat templates by name: how transformers renders a conversation with a tokenizer's special tokens. Each is a Jinja
#: template for messages with `role` and `content`, in the shape that the models it is named after were trained with,
#: without tools and default system prompts.
CHAT_TEMPLATES = {
    "chatml": ChatTemplate(
        "{% for message in messages %}"
        "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        ("<|im_start|>", "<|im_end|>"),
    ),
    "llama3": ChatTemplate(
        "{{ bos_token or '' }}"
        "{% for message in messages %}"
        "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}"
        "{{ message['content'] | trim + '<|eot_id|>' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    ),
    "phi3": ChatTemplate(
        "{% for message in messages %}"
        "{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
        ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
    ),
}


def read_chat_template(name_or_path: str, special_tokens: Collection[str]) -> str:
    """Return a chat template, given its name, the path of a Jinja file, or the template itself.

    Args:
        name_or_path: the name, path or template.
        special_tokens: the tokenizer's special tokens.

    Raises:
        ConfigError: there is neither a template of this name nor a file, or the tokenizer lacks tokens of the template.
        FormatError: the file cannot be read, is empty, or is not UTF-8.
    """
    if named := CHAT_TEMPLATES.get(name_or_path):
        missing = [token for token in named.special_tokens if token not in special_tokens]
        if missing:
            raise ConfigError(
                f"chat_template {name_or_path} needs special tokens that the tokenizer does not have: "
                f"{' '.join(missing)}; add them (special_tokens, or Tokenizer.with_special_tokens)"
            )
        return named.template
    if "{{" in name_or_path or "{%" in name_or_path:
        return name_or_path
    path = Path(name_or_path).expanduser()
    if not path.exists():
        hint = suggestion(name_or_path, CHAT_TEMPLATES) or f"; need a Jinja file, or {', '.join(CHAT_TEMPLATES)}"
        raise ConfigError(f"chat_template: no file {name_or_path}{hint}")
    text = read_text(path)
    if not text.strip():
        raise FormatError(f"{path}: an empty chat template")
    return text
