"""Train a tokenizer for a chat model and load it with transformers.

pip install transformers jinja2
python examples/transformers_export.py corpus.txt my_model
"""

from __future__ import annotations

import argparse

from bpeflow import Tokenizer

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]


def main() -> None:
    """Train, save and load."""
    parser = argparse.ArgumentParser(description="Train a tokenizer for a chat model.")
    parser.add_argument("corpus")
    parser.add_argument("folder")
    options = parser.parse_args()
    tokenizer = Tokenizer.train(options.corpus, vocab_size=1000, special_tokens=SPECIAL_TOKENS)
    tokenizer.save(
        options.folder,
        "huggingface",
        eos="<|im_end|>",
        pad="<|pad|>",
        chat_template="chatml",
        max_length=2048,
        overwrite=True,
    )

    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(options.folder)
    text = "What does a pre-token contain?"
    assert loaded.encode(text) == tokenizer.encode(text)
    print(loaded(["one", "one and another"], padding=True)["attention_mask"])
    print(loaded.apply_chat_template([{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True))


if __name__ == "__main__":
    main()
