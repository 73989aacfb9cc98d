"""Safe cuts: where a document may be cut without changing a pre-token, derived from the pattern's automaton.

A *safe cut* is a place ``p`` such that ``pretokens(A) + pretokens(B) == pretokens(A + B)``, where ``A`` is the text
before ``p`` and ``B`` the text from ``p`` on, whatever else ``A`` and ``B`` contain. Whether ``p`` is one depends here
on the classes of two characters: ``x``, the last of ``A``, and ``w``, the first of ``B``. (`transducer` explains
*attempts* and *gaps*; a match that ends before a character is seen when the automaton reads that character.)

*Weak pairs.* ``(x, w)`` is weak if in every state that the automaton can be in after reading ``x``, reading ``w`` ends
the attempt, and a match ends before ``w`` exactly if one ends there at the end of the text.

*Then all attempts that start in* ``A`` *have the same result in* ``A`` *and in* ``A + B``. By induction from left to
right: an attempt that ends before it has read past ``x`` does not depend on ``w``. One that has read ``x`` is in such
a state, so it ends, with the same match or none, whether ``w`` or the end of the text follows. Hence the next attempt
starts at the same place. None of these matches reaches beyond ``p``, so one attempt of ``A + B`` starts at ``p``, and
from there on they are those of ``B``, as no pattern that is compiled looks behind. So ``A + B`` has the matches of
``A`` and of ``B``, and only a gap can extend across ``p``.

*Strong pairs.* ``(x, w)`` is strong if it is weak and either an attempt that starts at ``x`` matches ``x`` if ``w``
follows, or an attempt that starts at ``w`` always matches.

*Then a pre-token ends at* ``p``. If ``x`` is in a match, that match ends at ``p``. Otherwise ``x`` is in a gap, so an
attempt has started at ``x`` and failed, which excludes the first case. In the second, the attempt that starts at ``p``
matches, so the gap ends there.

*Which pairs are safe.* If gaps are dropped, weak pairs are, as the matches are the same. Otherwise gaps are pre-tokens
(or errors), and strong pairs are safe, as no gap extends across ``p``. In a sequence of patterns whose gaps are
dropped, a pair that is weak in the first step is safe: the next steps are given the same pieces. Otherwise it is safe
if it is strong in one step and weak in all steps before it. Up to that step, the pieces are the same but for one that
extends across ``p``, in which ``x`` and ``w`` are next to each other, so the argument above holds for this piece. That
step ends a piece at ``p``, and the steps after it are given the same pieces.

*Bytes.* A place in UTF-8 is only looked at if a complete character ends there and a complete one begins. No byte
elsewhere in the text changes either of them, however invalid it is, and ``decode(A) + decode(B) == decode(A + B)``.

*Normalized text.* With a normalizer ``n``, ``p`` is a safe cut if ``n(A) + n(B) == n(A + B)``, and the pair of the last
character of ``n(A)`` and the first of ``n(B)`` is safe. A step of ``n`` is a normalization form of Unicode or the lower
case of each character. Places are looked at where ``x`` and ``w`` are ASCII or unified ideographs (U+4E00–9FFF). These
are starters without decompositions, and none is composed with a character before it, so the forms have a boundary at
``p``, and nothing after ``x`` changes it. Nor is one composed with a character after it, except ASCII letters and
``<=>``, which are no ``w``. So the forms change neither ``x`` nor ``w``. Lower case changes only ``x``, and only to an
ASCII letter, for which the same holds in the next step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bpeflow.pretokenize.automaton import DEAD, Dfa
from bpeflow.pretokenize.tables import STRONG, UNSAFE, WEAK


def safe_pairs(dfa: Dfa) -> NDArray[np.uint8]:
    """Return for each class of ``x`` and each class of ``w`` whether the pair is `STRONG`, `WEAK` or `UNSAFE`."""
    after, match = dfa.after[:, :-1], dfa.match[:, :-1]
    ends_as_the_text = (after == DEAD) & (match == dfa.match[:, -1:])  # [state, class of w]
    weak = np.array([ends_as_the_text[states[states != DEAD]].all(axis=0) for states in after.T])
    matches_x = match[after[0]] & (after[0] != DEAD)[:, np.newaxis]
    return np.where(weak, np.where(matches_x | ~dfa.can_fail, STRONG, WEAK), UNSAFE).astype(np.uint8)
