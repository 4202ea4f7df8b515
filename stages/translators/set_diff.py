"""Set difference of two flows of URLs, hour by hour.

Source: CBP (SoCC'10), section 2.2, figure 4, "A stage implementing symmetric set difference".
"""

from __future__ import annotations

from typing import Any

from cbp import Align, Input, Output, State, Translate, framed

__all__ = ["SetDiff"]

_hour = framed(lambda record: f"{record.time:%Y-%m-%d %H}:00")


class SetDiff(Translate):
    """Report URLs that only one of two crawlers found, in the hour in which they are new.

    An increment of either input is one hour of its crawl. If the next hours of both inputs have
    the same name, they are read together; otherwise the smaller one is read alone. So a crawler
    that finds nothing for an hour does not delay the other. A URL that either side has found
    before is never reported again, even if the other side finds it later.

    Shape:
        a, b: `(url, time)`; the hours of `time` never go back.
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
        """Report a URL that only one side found, unless it was seen before."""
        out.seen(url=key.url)
        if any(True for _ in group.seen):
            return
        in_a, in_b = (any(True for _ in side) for side in (group.a, group.b))
        if in_a and not in_b:
            out.a_diff(url=key.url)
        if in_b and not in_a:
            out.b_diff(url=key.url)
