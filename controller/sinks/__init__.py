"""Sinks: flows and views, published outside of a dataflow's folder, each increment once.

`publishing` makes the passes; `notes` keeps the progress of each sink; each kind of target has a
module that writes it; `targets` makes the targets, and checks that the operator allowed them;
`sink_standing` makes the figures and states that are shown.
"""

from controller.sinks.notes import SinkNotes
from controller.sinks.publishing import SinkPublishing
from controller.sinks.targets import SinkPlaces

__all__ = ["SinkNotes", "SinkPlaces", "SinkPublishing"]
