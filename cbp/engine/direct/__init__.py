"""The direct engine: state is never shuffled, and a run costs what its increment touches."""

from cbp.engine.direct.engine import DirectEngine, LocalEngine

__all__ = ["DirectEngine", "LocalEngine"]
