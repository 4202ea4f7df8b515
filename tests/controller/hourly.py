"""Frames that punctuations close."""

from __future__ import annotations

from cbp import Input
from tests.controller.world import SCHEMA, Sum


class Hourly(Sum):
    """Cuts its input by a column."""

    items = Input(SCHEMA, route_by="word", frame_by="n")


class Impatient(Sum):
    """Closes its input when nothing has come for a minute."""

    items = Input(SCHEMA, route_by="word", frame_by="n", close_idle_seconds=60)
