"""Progress: the one protocol for it, and observers that show it."""

from bpeflow.progress.choice import shown
from bpeflow.progress.observer import Observer

__all__ = ["Observer", "shown"]
