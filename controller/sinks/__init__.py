"""Sinks: flows and views, published outside of a dataflow's folder, each increment once.

`publishing` makes the passes; `notes` has how far each sink is; a module per target writes it;
`targets` makes it, and has what the operator allowed; `sink_standing` has what is shown.
"""

from controller.sinks.notes import SinkNotes
from controller.sinks.publishing import SinkPublishing
from controller.sinks.targets import SinkPlaces

__all__ = ["SinkNotes", "SinkPlaces", "SinkPublishing"]
