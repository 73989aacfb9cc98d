"""Settings: their models, the only description of each, and how they are read."""

from bpeflow.config.fields import Setting, all_settings, setting
from bpeflow.config.reading import load_values, make_settings, override
from bpeflow.config.sections import EngineSettings, MonitorSettings, OutputSettings, ThinRare, TransformersSettings
from bpeflow.config.settings import (
    COUNT_ONLY,
    CorpusSettings,
    CountSettings,
    MergeSettings,
    Settings,
    SourceSettings,
    check_vocab_sizes,
)

__all__ = [
    "COUNT_ONLY",
    "CorpusSettings",
    "CountSettings",
    "EngineSettings",
    "MergeSettings",
    "MonitorSettings",
    "OutputSettings",
    "Setting",
    "Settings",
    "SourceSettings",
    "ThinRare",
    "TransformersSettings",
    "all_settings",
    "check_vocab_sizes",
    "load_values",
    "make_settings",
    "override",
    "setting",
]
