"""Names of other libraries, for the message about one that bpeflow does not have."""

from __future__ import annotations

from collections.abc import Iterable

from bpeflow._util.text import close_matches

#: How bpeflow writes what methods and properties of other tokenizers do.
_OTHER_NAMES = {
    "add_special_tokens": "with_special_tokens([…])",
    "add_tokens": "with_special_tokens([…])",
    "all_special_ids": "special_tokens.values()",
    "all_special_tokens": "special_tokens",
    "batch_decode": "decode_batch(…)",
    "batch_encode_plus": "encode_batch(…)",
    "convert_ids_to_tokens": "id_to_token(id)",
    "convert_tokens_to_ids": "token_to_id(token)",
    "decode_single_token_bytes": "id_to_token(id)",
    "encode_as_ids": "encode(text)",
    "encode_single_token": "token_to_id(token)",
    "eos_token_id": "eot_token",
    "eot_token_id": "eot_token",
    "get_vocab": "vocab, a mapping from id to bytes, or vocab.token_ids",
    "get_vocab_size": "vocab_size",
    "n_words": "vocab_size",
    "pad_token_id": "special_tokens['<|pad|>']",
    "save_model": "save(folder)",
    "save_pretrained": "save(folder, 'huggingface')",
    "special_tokens_set": "special_tokens",
    "to_str": "save('tokenizer.json') or to_tokenizers()",
    "token_byte_values": "vocab.values()",
    "tokenize": "explain(text), or [tokenizer.id_to_token(i) for i in tokenizer.encode(text)]",
}


def hint_for(name: str, known: Iterable[str]) -> str:
    """Return what to use instead of a name, as the end of a message; empty if nothing is like it."""
    if name in _OTHER_NAMES:
        return f"; use {_OTHER_NAMES[name]}"
    close = close_matches(name, [other for other in known if not other.startswith("_")])
    return f"; did you mean {close[0]!r}?" if close and not name.startswith("_") else ""
