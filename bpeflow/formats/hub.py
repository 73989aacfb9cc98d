"""Tokenizers by name: from tiktoken's cache or by its package, and from the HuggingFace hub."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from bpeflow._util.text import short_repr, suggestion
from bpeflow.errors import InputTypeError, TokenizerNotFoundError

#: Where tiktoken downloads the ranks of its encodings. Source: tiktoken 0.14, ``tiktoken_ext/openai_public.py``.
_TIKTOKEN_URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"

#: The ranks of each of tiktoken's encodings. `gpt2` has the same ids as `r50k_base`.
_TIKTOKEN = {
    "gpt2": "r50k_base",
    "r50k_base": "r50k_base",
    "p50k_base": "p50k_base",
    "p50k_edit": "p50k_base",
    "cl100k_base": "cl100k_base",
    "o200k_base": "o200k_base",
    "o200k_harmony": "o200k_base",
}

#: A repository of the hub: its name, with or without its owner's.
_REPOSITORY = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", re.ASCII)

#: Characters of the reason why a download failed.
_REASON = 120

#: The files of a repository that are needed.
_FILES = [
    "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "encoder.json", "vocab.bpe",
    "tokenizer.model", "tiktoken.model", "bpeflow.json", "*.tiktoken", "*.tiktoken.json",
]  # fmt: skip


def find_pretrained(name: str | Path, revision: str | None = None) -> tuple[Path | Any, str | None]:
    """Find a tokenizer by its name: a path or a name of tiktoken or of the HuggingFace hub, in this order.

    Args:
        name: the path or the name.
        revision: a branch, a tag or a commit of the hub.

    Returns:
        The path of the tokenizer, or an object that `live.from_object` takes, and the name of a published tokenizer as
        which it is to be loaded.

    Raises:
        TokenizerNotFoundError: there is none, or it cannot be downloaded. The message has the remedy.
    """
    if not isinstance(name, str | Path):
        raise InputTypeError(f"the name of a tokenizer is {short_repr(name)}; it must be a str or a path")
    name = str(name)
    path = Path(name).expanduser()
    if path.exists():
        return path, None
    missing = f"{name}: no such file or folder"
    if name in _TIKTOKEN:
        published = _TIKTOKEN["gpt2"] if name == "gpt2" else name
        url = _TIKTOKEN_URL.format(_TIKTOKEN[name])
        cached = _tiktoken_cache() / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
        if cached.is_file():
            return cached, published
        remedy = f"download {url} and give its path, or save it as {cached}"
        try:
            import tiktoken

            return tiktoken.get_encoding(published), None
        except ImportError:
            cause, remedy = "tiktoken is not installed", f"pip install tiktoken, or {remedy}"
        except Exception as error:  # whatever its way to download raises
            cause = f"tiktoken cannot download it ({_root_of(error)})"
        raise TokenizerNotFoundError(f"{missing}, and {cause}: {remedy}")
    missing += suggestion(name, _TIKTOKEN).replace("; ", " (").replace("?", "?)")
    if not _REPOSITORY.fullmatch(name):
        raise TokenizerNotFoundError(missing)
    remedy = "download the repository's tokenizer.json and give its path"
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, revision=revision, allow_patterns=_FILES)), None
    except ImportError:
        cause = "huggingface_hub, for tokenizers of the HuggingFace hub, is not installed"
        remedy = f"pip install 'bpeflow[hub]', or {remedy}"
    except Exception as error:  # whatever its way to download raises
        cause = f"the HuggingFace hub does not have it, or cannot be reached ({_root_of(error)})"
        remedy = f"check the path (in {Path.cwd()}) or the name, or {remedy}"
    raise TokenizerNotFoundError(f"{missing}, and {cause}: {remedy}")


def _root_of(error: BaseException) -> str:
    """Return the first cause of an error, briefly. Behind a missing network it is ten errors deep."""
    text, cause = " ".join(str(error).split()), error.__cause__ or error.__context__
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            text = cause.strerror
        cause = cause.__cause__ or cause.__context__
    return text if len(text) <= _REASON else f"{text[:_REASON]}…"


def _tiktoken_cache() -> Path:
    """Return the folder of tiktoken's cache. Source: tiktoken 0.14, ``tiktoken/load.py``."""
    given = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    return Path(given or Path(tempfile.gettempdir(), "data-gym-cache"))
