r"""Published tokenizers: the pattern and the special tokens of files that have only tokens and their ranks.

The files are recognised by their content, because names prove nothing: many are called ``tokenizer.model`` or
``vocab.json``. Some are used with one of several sets of special tokens, of which a name chooses one (`PUBLISHED`).
Models differ in the special tokens that their ``tokenizer_config.json`` assigns to reserved ids, so these are taken
from that file, if it is there. Each entry of the table names its source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from bpeflow._util.text import NormalizerName, Pattern, UnmatchedPolicy, unknown_name
from bpeflow.errors import ConfigError
from bpeflow.formats.printable import merge_lines
from bpeflow.formats.untrusted import is_text, read_json
from bpeflow.pretokenize.patterns import KIMI
from bpeflow.vocab import Vocab

#: The file beside a vocabulary in which HuggingFace's transformers finds the special tokens.
CONFIG_FILE = "tokenizer_config.json"


@dataclass(frozen=True)
class Description:
    """What a list of tokens lacks.

    Attributes:
        pattern: the split pattern.
        special_tokens: the id of each special token.
        unmatched: what to do with text that the pattern does not match.
        normalizer: what is applied to text before it is split.
        reserved: ids of special tokens that a ``tokenizer_config.json`` may rename.
    """

    pattern: Pattern
    special_tokens: dict[str, int] = field(default_factory=dict)
    unmatched: UnmatchedPolicy = "isolate"
    normalizer: tuple[NormalizerName, ...] = ()
    reserved: range = range(0)


def _numbered(first: int, *groups: Iterable[str]) -> dict[str, int]:
    """Number special tokens from `first` on."""
    return {text: first + index for index, text in enumerate(text for group in groups for text in group)}


def _reserved(form: str, numbers: Iterable[int]) -> list[str]:
    return [form.format(number) for number in numbers]


# ---- special tokens ----

_END = "<|endoftext|>"
_FIM = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
_CHAT = ("<|im_start|>", "<|im_end|>")

# tiktoken 0.14, tiktoken_ext/openai_public.py, `o200k_harmony`. An id has one text here: ``<|reserved_200018|>``, there
# a second text of ``<|endofprompt|>``, is left out.
_HARMONY = {
    "<|startoftext|>": 199998, _END: 199999, "<|return|>": 200002, "<|constrain|>": 200003, "<|channel|>": 200005,
    "<|start|>": 200006, "<|end|>": 200007, "<|message|>": 200008, "<|call|>": 200012, "<|endofprompt|>": 200018,
}  # fmt: skip
_HARMONY |= {
    f"<|reserved_{token_id}|>": token_id for token_id in range(200000, 201088) if token_id not in set(_HARMONY.values())
}

# meta-llama/llama-models, models/llama3/tokenizer.py.
_LLAMA3 = _numbered(
    128000,
    ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>"],
    ["<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>"],
    ["<|eot_id|>", "<|python_tag|>", "<|image|>"],
    _reserved("<|reserved_special_token_{}|>", range(2, 246)),
)

# meta-llama/llama-models, models/llama4/tokenizer.py.
_TEXT, _VISION = "<|text_post_train_reserved_special_token_{}|>", "<|vision_reserved_special_token_{}|>"
_LLAMA4 = _numbered(
    200000,
    ["<|begin_of_text|>", "<|end_of_text|>", *_FIM],
    ["<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>", "<|step|>", *_reserved(_TEXT, range(6))],
    ["<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>", *_reserved(_TEXT, range(8, 69))],
    ["<|image_start|>", "<|image_end|>", *_reserved(_VISION, range(2)), "<|tile_x_separator|>", "<|tile_y_separator|>"],
    [*_reserved(_VISION, range(2, 6)), "<|image|>", *_reserved(_VISION, [6]), "<|patch|>"],
    [*_reserved(_VISION, range(7, 1048)), *_reserved("<|reasoning_reserved_special_token_{}|>", range(8))],
    ["<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"],
    _reserved("<|reserved_special_token_{}|>", range(904)),
)

# moonshotai/Kimi-K2-Instruct, tokenization_kimi.py and tokenizer_config.json. The other reserved ids have the names
# that the former gives them.
_KIMI_RESERVED = range(163584, 163840)
_KIMI_K2 = {
    "[BOS]": 163584, "[EOS]": 163585, "<|im_end|>": 163586, "<|im_user|>": 163587, "<|im_assistant|>": 163588,
    "<|start_header_id|>": 163590, "<|end_header_id|>": 163591, "[EOT]": 163593, "<|im_system|>": 163594,
    "<|tool_calls_section_begin|>": 163595, "<|tool_calls_section_end|>": 163596, "<|tool_call_begin|>": 163597,
    "<|tool_call_argument_begin|>": 163598, "<|tool_call_end|>": 163599, "<|im_middle|>": 163601, "[UNK]": 163838,
    "[PAD]": 163839,
}  # fmt: skip
_KIMI_K2 |= {
    f"<|reserved_token_{token_id}|>": token_id for token_id in _KIMI_RESERVED if token_id not in set(_KIMI_K2.values())
}

#: The published tokenizers, by name.
PUBLISHED = {
    # tiktoken 0.14, tiktoken_ext/openai_public.py.
    "r50k_base": Description("gpt2", {_END: 50256}),
    "p50k_base": Description("gpt2", {_END: 50256}),
    "p50k_edit": Description("gpt2", {_END: 50256, **_numbered(50281, _FIM)}),
    "cl100k_base": Description("cl100k", {**_numbered(100257, [_END], _FIM), "<|endofprompt|>": 100276}),
    "o200k_base": Description("o200k", {_END: 199999, "<|endofprompt|>": 200018}),
    "o200k_harmony": Description("o200k", _HARMONY),
    "llama3": Description("llama3", _LLAMA3),
    "llama4": Description("o200k", _LLAMA4),
    # Qwen/Qwen-7B, tokenization_qwen.py.
    "qwen": Description(
        "qwen2", _numbered(151643, [_END], _CHAT, _reserved("<|extra_{}|>", range(205))), normalizer=("nfc",)
    ),
    # Qwen/Qwen2-7B, tokenizer.json. Qwen2.5 and Qwen3 have further special tokens in tokenizer_config.json.
    "qwen2": Description(
        "qwen2", _numbered(151643, [_END], _CHAT), normalizer=("nfc",), reserved=range(151643, 151936)
    ),
    "kimi_k2": Description(KIMI, _KIMI_K2, reserved=_KIMI_RESERVED),
}

#: The names of files with ranks, by the SHA-256 of their content (with the line ends of Unix).
_RANKS = {
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": "r50k_base",
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": "p50k_base",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": "cl100k_base",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": "o200k_base",
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55": "llama3",
    "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed": "llama4",
    "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186": "qwen",
    "b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103": "kimi_k2",
}

#: Names of published ``merges.txt``, of GPT-2 and of Qwen2, 2.5 and 3, by the SHA-256 of their lines.
_MERGES = {
    "ac33235097fe06d4a8fff0feac994644809e6eb6ab70669e1e9fd40ae032428e": "r50k_base",
    "599bab54075088774b1733fde865d5bd747cbcc7a547c5bc12610e874e26f5e3": "qwen2",
}


def find_ranks(content: bytes, folder: Path) -> Description | None:
    """Return the description of a published file of ranks in `folder`, by its content; None if it is unknown."""
    name = _RANKS.get(hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest())
    return None if name is None else find_name(name, folder)


def find_merges(vocab: Vocab, folder: Path) -> Description | None:
    """Return the description of a published ``merges.txt`` in `folder`, by its merges; None if it is unknown."""
    name = _MERGES.get(hashlib.sha256(merge_lines(vocab).encode()).hexdigest())
    return None if name is None else find_name(name, folder)


def find_name(name: str, folder: Path) -> Description:
    """Return the description of a published tokenizer in `folder`, by its name.

    Raises:
        ConfigError: the name is unknown.
        FormatError: the ``tokenizer_config.json`` in the folder is damaged.
    """
    if name not in PUBLISHED:
        raise ConfigError(f"known: {unknown_name('tokenizer', name, PUBLISHED)}")
    found = PUBLISHED[name]
    path = folder / CONFIG_FILE
    if not found.reserved or not path.is_file():
        return found
    names = {token_id: text for text, token_id in found.special_tokens.items()}
    names |= {token_id: text for token_id, text in _read_config(path).items() if token_id in found.reserved}
    return replace(found, special_tokens={text: token_id for token_id, text in sorted(names.items())})


def _read_config(path: Path) -> dict[int, str]:
    """Return the special tokens of a ``tokenizer_config.json``, by id."""
    part = read_json(path)["added_tokens_decoder"]
    if not isinstance(part.value, dict | None):
        raise part.need("an object of id: token")
    texts: dict[int, str] = {}
    for key in part.value or ():
        text = part[key]["content"].value
        if not key.isdecimal() or len(key) > 10 or not is_text(text) or text in texts.values():
            raise part.need("an object of id: token, each with a content of its own")
        texts[int(key)] = text
    return texts
