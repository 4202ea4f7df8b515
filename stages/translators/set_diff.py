"""Set difference of two flows of URLs, hour by hour.

Source: CBP (SoCC'10), section 2.2, figure 4, "A stage implementing symmetric set difference".
"""

from __future__ import annotations

from typing import Any

from cbp import Align, Input, Output, State, Translate, framed

__all__ = ["SetDiff"]

_hour = framed(lambda record: f"{record.time:%Y-%m-%d %H}:00")


class SetDiff(Translate):
    """Say which URLs only one of two crawlers found, in the hour in which they are new.

    An increment of either input is one hour of its crawl. Hours of equal name are read
    together, else the smaller one alone, so that a crawler that finds nothing for an hour
    keeps nobody waiting for it. A URL that either side has found before is never reported
    again, even if the other side finds it later.

    Shape:
        a, b: `(url, time)`, times never going back by an hour.
        seen (state): `(url)`, every URL that either side found.
        a_diff, b_diff: `(url)`, a history by hours.
    """

    runnable = Align()
    a = Input("url STRING, time TIMESTAMP", route_by="url", frame_by=_hour)
    b = Input("url STRING, time TIMESTAMP", route_by="url", frame_by=_hour)
    seen = State("url STRING")
    a_diff = Output("url STRING", history=True)
    b_diff = Output("url STRING", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Report a URL that one side only found, unless it was seen before."""
        out.seen(url=key.url)
        if any(True for _ in group.seen):
            return
        in_a, in_b = (any(True for _ in side) for side in (group.a, group.b))
        if in_a and not in_b:
            out.a_diff(url=key.url)
        if in_b and not in_a:
            out.b_diff(url=key.url)
