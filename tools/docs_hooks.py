"""Hooks of mkdocs: pages that are files outside docs/, and links to such files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

#: Pages that are files of the repository, where their readers look for them first.
_INCLUDED = {"how_it_works.md": "HACKING.md", "changelog.md": "CHANGELOG.md"}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put files in place of links to them, and turn links to other files that are not on the site into plain text."""
    name = page.file.src_uri
    if name in _INCLUDED:
        markdown = (ROOT / _INCLUDED[name]).read_text(encoding="utf-8")
    markdown = re.sub(r"\]\(docs/", "](", markdown)
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", markdown)
