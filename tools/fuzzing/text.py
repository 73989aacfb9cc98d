"""Text of the kind that scanners get wrong: edges of classes, contractions, runs, and all that at a block's edge."""

from __future__ import annotations

from fuzzing.choices import Choices

#: Of what patterns treat differently, one or two each.
PARTS = (
    *("a", "Z", "the", "Word", "ABC", "é", "ß", "д", "Д", "ǅ", "ʰ", "日", "한", "ا", "の", "\U00020000"),
    *("'s", "'S", "'ll", "'LL", "'rE", "'ſ", "'", "’s", "''"),
    *(" ", "  ", "\n", "\r\n", "\n\n", "\t", "\x1c", "\x85", "\xa0", "\u2003", "\u2028", "\u3000", "\u200b"),
    *("1", "123", "1234", "²", "½", "٣", "Ⅷ"),
    *("!", "...", "/", "$", "_", "—", "。", "😀", "\u0301", "\u20dd", "\u0378", "\x00", "\x7f"),
)
#: What is put before a text, so that it meets the edges of 64-byte blocks.
_FILLERS = ("x", " ", "\n", "1", ".", "a'")
_LONGEST = 6000


def make_text(choices: Choices) -> str:
    """Make a text of what is left: the bytes as they stand, parts one after another, or runs of parts."""
    kind = choices.below(3)
    before = choices.one_of(_FILLERS) * choices.below(131)
    if kind == 0:
        return before + choices.take(choices.left).decode(errors="replace")
    pieces = []
    while choices.left:
        part = choices.one_of(PARTS)
        pieces.append(part if kind == 1 else part * choices.below(140))
    return (before + "".join(pieces))[:_LONGEST]
