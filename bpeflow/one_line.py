"""`one_line`: text that people are shown, of which parts come from names and files that nobody trusts."""

from __future__ import annotations


def one_line(text: str) -> str:
    r"""Write characters that move the cursor, colour the screen or end the line as escapes: ``a\nb`` for a newline.

    A file's name may have any of them, and a message shall stay the one line that tools look for.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
