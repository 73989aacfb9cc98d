"""Progress: the one protocol for it, and observers that show it."""

from bpeflow.progress.observer import Observer, shown

__all__ = ["Observer", "shown"]
