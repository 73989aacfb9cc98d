"""Hooks of mkdocs: pages made of the program itself and of files outside docs/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from bpeflow.cli.main import COMMANDS, GROUPS, load_command

ROOT = Path(__file__).parents[1]

#: Pages that are files of the repository, where their readers look for them first.
_INCLUDED = {"how_it_works.md": "HACKING.md", "changelog.md": "CHANGELOG.md"}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in pages, and turn links to files that are not on the site into plain text."""
    name = page.file.src_uri
    if name in _INCLUDED:
        markdown = (ROOT / _INCLUDED[name]).read_text(encoding="utf-8")
    elif name == "commands.md":
        markdown += "".join(_commands())
    markdown = re.sub(r"\]\(docs/", "](", markdown)
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", markdown)


def _commands() -> list[str]:
    parts = []
    for title, commands in GROUPS.items():
        parts.append(f"\n## {title}\n")
        for name in (name for name in commands if name in COMMANDS):
            parser, _ = load_command(name)
            parts.append(f"\n### bpeflow {name}\n\n```text\n{parser.format_help().strip()}\n```\n")
    return parts
