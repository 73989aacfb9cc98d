"""Random settings: some determine the result, the others may differ from run to run."""

from __future__ import annotations

from random import Random
from typing import Any

from bpeflow.config import EngineSettings

#: Settings that are not varied, with the reason. `tests/tools/test_soak.py` checks that none is missing.
LEFT_OUT = {
    "out_dir": "each trial has its own",
    "resume": "passed as a flag",
    "restart": "passed as a flag",
    "overwrite": "always given, as the folder may have earlier results",
    "normalizer": "decoded files are compared with their input",
    "output.report": "a page about the run, made of its results",
    **dict.fromkeys(
        [f"engine.{name}" for name in EngineSettings.model_fields],
        "tests/counting/test_ray.py kills tasks at each step",
    ),
    "sources.exclude": "like exclude",
    "sources.text_field": "like text_field",
    **dict.fromkeys(
        [f"output.{option}" for option in ("eos", "bos", "add_bos", "pad", "chat_template", "max_length")],
        "a few lines in a file of the huggingface format",
    ),
}

EOT = "<|endoftext|>"
NAMED = ("gpt2", "cl100k", "o200k", "llama3", "qwen2")
CUSTOM = (r"\w+|\W", r"\S+|\s+", r" ?\p{L}+|\p{N}|[^\p{L}\p{N}]+", r"[a-z ]+")
_SPECIALS: tuple[list[str], ...] = (
    [EOT],
    [EOT],
    [EOT, "<pad>", "ü✓"],
    ["<|end", EOT],
    ["\n\n", "<|x|>"],
    ["ab", EOT],
    [],
)


def draw_result_settings(choose: Random) -> dict[str, Any]:
    """Draw the settings that determine the result, except the corpus."""
    specials = choose.choice(_SPECIALS)
    first = 256 + len(specials)
    sizes = [first + choose.randrange(choose.choice((2, 60, 400))) for _ in range(choose.choice((1, 1, 1, 2, 3)))]
    plain = specials in ([], [EOT])
    pattern = choose.choice(NAMED if choose.random() < 0.75 else CUSTOM)
    formats = ("huggingface", "tiktoken") if plain and pattern in NAMED else ()
    drawn: dict[str, Any] = {
        "special_tokens": specials,
        "separator": choose.choice((None, None, None, "\n\n", "||", "日本")),
        "invalid_utf8": choose.choice(("error", "replace", "skip")),
        "bad_records": choose.choice(("error", "skip")),
        "pattern": pattern,
        "unmatched": choose.choice(("isolate", "drop")),
        "text_field": choose.choice(("text", "text", "data.text")),
        "tie_break": choose.choice(("greatest_bytes", "greatest_bytes", "smallest_ids", "huggingface")),
        "min_frequency": choose.choice((1, 1, 2, 10)),
        "max_token_length": choose.choice((None, None, 2, 5)),
        "thin_rare": choose.choice((None, None, "below=3,keep=0.5")),
        "special_tokens_first": choose.random() < 0.2,
        "skip_merge": choose.random() < 0.05,
        "output": {
            "formats": choose.sample(formats, choose.randrange(len(formats) + 1)) if choose.random() < 0.3 else []
        },
    }
    drawn |= {"vocab_size": sizes[0]} if len(sizes) == 1 else {"vocab_sizes": sizes}
    return drawn


def draw_superwords(choose: Random, settings: dict[str, Any]) -> dict[str, Any]:
    """Draw the settings of superwords for a run with the settings given, for some of those that can have them."""
    largest = max(settings.get("vocab_sizes", [settings.get("vocab_size", 0)]))
    first = 256 + len(settings["special_tokens"])
    if settings["skip_merge"] or largest == first or choose.random() < 0.7:
        return {}
    return {
        "superwords": True,
        "superword_pattern": choose.choice(("superbpe", "superbpe", r"\n", "[a-z ]+")),
        "transition_size": choose.randrange(first, largest),
        "max_words": choose.choice((None, 1, 2, 4)),
        "colon_rule": choose.random() < 0.5,
    }


def draw_run_settings(choose: Random, size: int, scratch: str) -> dict[str, Any]:
    """Draw settings that do not affect the result, for a corpus of `size` bytes. They may differ when resuming."""
    backend = choose.choice(("auto", "python", "c", "omp"))
    slow = size > 50_000 and backend == "python"
    return {
        "num_counter": choose.choice((None, 1, 2, 3)),
        "num_merger": choose.choice((1, 1, 2, 4)),
        "chunk_size": between(choose, max(size // 1000, 16), 2 * size + 32),
        "executor": choose.choice(("auto", "threads", "processes", "processes")),
        "memory_limit": choose.choice((None, "16mb", "16mb", "40mb")),
        "scratch_dir": choose.choice((None, None, scratch)),
        "segment_size": between(choose, max(size // 20, 100), size + 200) if choose.random() < 0.7 else "8gb",
        "backend": backend,
        "threads": choose.choice((None, 1, 2, 3)),
        "max_search": "heap" if slow else choose.choice(("heap", "scan")),
        "monitor": {"enabled": choose.random() < 0.2, "interval": choose.choice((0.05, 0.3, 10.0))},
    }


def between(choose: Random, low: int, high: int) -> int:
    """Draw a number, with all orders of magnitude equally likely."""
    return min(int(low * (high / low) ** choose.random()), high)
