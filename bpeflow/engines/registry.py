"""The engine that the settings name."""

from __future__ import annotations

from bpeflow.config import EngineSettings
from bpeflow.engines.base import Engine


def start_engine(settings: EngineSettings) -> Engine:
    """Start the engine of `engine.kind`, or connect to it. The caller stops it.

    Raises:
        EngineUnavailableError: its library is not installed.
        EngineError: the cluster cannot be reached.
    """
    if settings.kind == "ray":
        from bpeflow.engines.ray import RayEngine

        engine: Engine = RayEngine(settings)
        return engine
    from bpeflow.engines.processes import ProcessEngine

    return ProcessEngine(settings)
