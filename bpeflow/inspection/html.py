"""Tokens as HTML: a fragment for pages of others, and a page of its own."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from bpeflow.inspection.explain import Explainer
from bpeflow.inspection.markup import TOKENS_CSS, explanation_html, steps_html
from bpeflow.inspection.plain import summary_sentence
from bpeflow.tokenizer.tokenizer import BaseTokenizer

if TYPE_CHECKING:
    from bpeflow.inspection.explanation import Explanation

__all__ = ["TOKENS_CSS", "explanation_page", "tokens_html"]

_PAGE_CSS = """\
:root { color-scheme: light dark; }
body { font-family: system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
.bpe-tokens { border: 1px solid rgb(128 128 128 / .4); border-radius: 6px; padding: .6rem .8rem; }
"""

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
<h1>{title}</h1>
{body}
</html>
"""


def tokens_html(tokenizer: BaseTokenizer, text: str) -> str:
    """Return the tokens of a text, in colours, as an HTML fragment without scripts.

    Each token has its id and offsets as a tooltip. The page needs `TOKENS_CSS`.
    """
    return explanation_html(Explainer(tokenizer).explain(text))


def explanation_page(explanation: Explanation, title: str, steps: bool) -> str:
    """Return a self-contained page: the tokens, and a table of the pre-tokens.

    Args:
        explanation: the explanation.
        title: the title.
        steps: whether the merges of each pre-token are listed, and why its neighbours did not merge.
    """
    summary = escape(summary_sentence(explanation))
    return _PAGE.format(
        title=escape(title),
        style=f"{TOKENS_CSS}\n{_PAGE_CSS}",
        body=f"<p>{summary}</p>\n{explanation_html(explanation)}\n{steps_html(explanation, steps)}",
    )
