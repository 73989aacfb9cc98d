"""Chat templates by name: how transformers renders a conversation with a tokenizer's special tokens.

Each is a Jinja template for messages with `role` and `content`, in the shape that the models it is named after were
trained with, without tools and default system prompts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from bpeflow._util.text import close_matches
from bpeflow.errors import ConfigError, FormatError
from bpeflow.formats.untrusted import read_text


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template and the special tokens that it cannot do without."""

    template: str
    special_tokens: tuple[str, ...]


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
    """Return a chat template, given its name or the path of a Jinja file.

    Args:
        name_or_path: the name or path.
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
    path = Path(name_or_path).expanduser()
    if not path.exists():
        close = close_matches(name_or_path, CHAT_TEMPLATES)
        hint = f"did you mean {close[0]}?" if close else f"need a Jinja file, or {', '.join(CHAT_TEMPLATES)}"
        raise ConfigError(f"chat_template: no file {name_or_path}; {hint}")
    text = read_text(path)
    if not text.strip():
        raise FormatError(f"{path}: an empty chat template")
    return text
