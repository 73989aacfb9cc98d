"""Text that is hard to split correctly."""

from __future__ import annotations

from hypothesis import strategies as st

#: Strings that patterns treat specially, concatenated at random: contractions in both cases (and ſ, which folds to s),
#: every kind of white space, marks, letters and digits of several scripts and cases, unassigned code points.
PARTS = [
    *["'s", "'S", "'ll", "'LL", "'lL", "'re", "'ve", "'m", "'d", "'t", "'ſ", "'l", "'r", "'", "’s", "''"],
    *[" ", "  ", "\n", "\r\n", "\r", "\n\n", "\t", "\v", "\f", " \n ", "\n ", " \r\n"],
    *["\x1c", "\x1f", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u2029", "\u202f", "\u3000", "\u200b", "\ufeff"],
    *["a", "Z", "word", "CamelCase", "ABC", "aB", "é", "e\u0301", "\u0301", "ß", "ǅ", "ʰ", "д", "Д", "ا", "日本", "한"],
    *["0", "7", "123", "1234", "12345", "²", "½", "٣", "५", "Ⅷ", "〇"],
    *["!", "...", "/", "//", "/\n", "$", "-", "_", "<|", "—", "😀", "\u200d", "\u20dd", "\u0378", "\U000e0fff", "\x00"],
    *["の", "ー", "・", "語", "。", "「", "，", "！", "“", "…", "5月", "़", "की", "ქა", "ế", "\U00020000"],
    *["a=b;c(d)", "{}", "a1b2", "\n/", "!\n字", "\n語", "\n5", "\n\u3000", "。\n"],
]  # fmt: skip
adversarial_text = st.lists(st.sampled_from(PARTS) | st.characters(exclude_categories=["Cs"]), max_size=24).map("".join)
