"""Text that is hard for scanners: edges of character classes, contractions and repetitions, also at block edges."""

from __future__ import annotations

from fuzzing.choices import Choices

#: One or two examples of everything that patterns treat differently.
PARTS = (
    *("a", "Z", "the", "Word", "ABC", "é", "ß", "д", "Д", "ǅ", "ʰ", "日", "한", "ا", "の", "\U00020000"),
    *("'s", "'S", "'ll", "'LL", "'rE", "'ſ", "'", "’s", "''"),
    *(" ", "  ", "\n", "\r\n", "\n\n", "\t", "\x1c", "\x85", "\xa0", "\u2003", "\u2028", "\u3000", "\u200b"),
    *("1", "123", "1234", "²", "½", "٣", "Ⅷ"),
    *("!", "...", "/", "$", "_", "—", "。", "😀", "\u0301", "\u20dd", "\u0378", "\x00", "\x7f"),
)
#: Padding in front of a text, to shift it across the edges of 64-byte blocks.
_FILLERS = ("x", " ", "\n", "1", ".", "a'")
#: The largest number of characters in a text.
_MAX_LENGTH = 6000


def make_text(choices: Choices) -> str:
    """Make a text from the unused bytes: the bytes themselves, a sequence of parts, or repeated parts."""
    kind = choices.below(3)
    padding = choices.one_of(_FILLERS) * choices.below(131)
    if kind == 0:
        return padding + choices.take(choices.left).decode(errors="replace")
    pieces = []
    while choices.left:
        part = choices.one_of(PARTS)
        pieces.append(part if kind == 1 else part * choices.below(140))
    return (padding + "".join(pieces))[:_MAX_LENGTH]
