"""The choice of an encoder by name."""

from __future__ import annotations

from bpeflow._util.text import close_matches
from bpeflow.errors import ConfigError, NativeUnavailableError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.tokenizer.encoder import DEFAULT_CACHE_BYTES, Encoder
from bpeflow.tokenizer.native_encoder import NativeEncoder
from bpeflow.tokenizer.python_encoder import PythonEncoder

#: Names of the encoders, best first. ``auto`` takes the first that is available.
ENCODERS = ("native", "python")


def new_encoder(spec: TokenizerSpec, name: str = "auto", cache_bytes: int = DEFAULT_CACHE_BYTES) -> Encoder:
    """Return the encoder of that name. ``auto`` is the native one if it is available, else the Python one.

    Raises:
        ConfigError: the name is unknown, or the cache size is invalid.
        NativeUnavailableError: ``native`` was requested but is not available.
        FormatError: the vocabulary and the merges do not fit each other.
    """
    if name not in ("auto", *ENCODERS):
        nearest = close_matches(str(name), ENCODERS)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ConfigError(f"unknown encoder {name!r}; {hint}there are: auto, {', '.join(ENCODERS)}")
    if not isinstance(cache_bytes, int) or not 0 <= cache_bytes < 1 << 63:
        raise ConfigError(f"cache_bytes is {cache_bytes!r}; it must be an integer number of bytes, 0 for no cache")
    if name != "python":
        try:
            return NativeEncoder(spec, cache_bytes)
        except NativeUnavailableError:
            if name == "native":
                raise
    return PythonEncoder(spec, cache_bytes)
