"""Clusters of points around their means, while points come and go, on columns.

    points that came and went -> all points -> [nearest centre -> means] ... -> centres, members
                                                     '- until no mean moves by more -'

A bulk loop: each round reads all points, and the loop ends once no mean moves farther than a limit.
It begins with points that are far from each other, in an order that does not depend on when they
came. So the result depends on the present points only. Each run reads all points and computes all
centres, but does not write unchanged records.

Source: Lloyd (1982); first centres: Gonzalez, "Clustering to minimize the maximum intercluster
distance" (1985).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp import Input, State, TranslateRun, View
from cbp.errors import DefinitionError, Mistake
from stages.link_arrays import ANEW
from stages.nodes import array_of

__all__ = ["KMeansArrow"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]

_DISTANCES_MAX = 4_000_000
"""Most distances that are in memory at a time."""


class KMeansArrow(TranslateRun):
    """Assign each point to the nearest of some centres, each of which is the mean of its points.

    Points with a null or a NaN are ignored.

    Shape:
        points: records `(id, <columns> DOUBLE, gone BOOLEAN)`: the last one of an id counts. With
            `changes=True`, the changes of a view with the columns `id` and `columns`, and the key
            `id`.
        centres: a view `(centre, <columns>, size BIGINT)` with the key `centre`: the mean and the
            number of its points. A centre is named after the point from which it began.
        members: a view `(id, centre)` with the key `id`.

    Args:
        columns: Names of the coordinates, such as `"x, y, z"`; they are `DOUBLE`.
        k: Largest number of centres; there are fewer if there are fewer different points.
        moved: The loop ends when no mean moves by more, in units of the coordinates.
        rounds: The loop ends after this many rounds in any case.
        id: Type of a point's id, such as `STRING`.
        changes: Whether points are the changes of a view.
    """

    ways = "anew: reads all points, and begins again"

    def __init__(
        self,
        columns: str = "x, y",
        k: int = 8,
        moved: float = 1e-9,
        rounds: int = 300,
        id: str = "BIGINT",
        changes: bool = False,
    ) -> None:
        for name, value, least in (("k", k, 1), ("rounds", rounds, 1), ("moved", moved, 0)):
            if not value >= least:
                where = f"{type(self).__name__}.{name}"
                message = f"{value!r}; give {least} or more"
                raise DefinitionError(Mistake("parameter_invalid", where, message))
        self.names = [name.strip() for name in columns.split(",")]
        columns = ", ".join(f"{name} DOUBLE" for name in self.names)
        self.k, self.moved, self.rounds = k, moved, rounds
        self.key = f"id {id}"
        last = "sign INT" if changes else "gone BOOLEAN"
        self.points = Input(
            f"id {id}, {columns}, {last}", route_by="id", changes="signed" if changes else ""
        )
        self.held = State(f"id {id}, {columns}", keep=True, key="id")
        self.centres = View(
            f"centre {id}, {columns}, size BIGINT", route_by="centre", key="centre", keep=True
        )
        self.members = View(f"id {id}, centre {id}", key="id", keep=True)

    def translate(self, tables: Any, out: Any) -> str:
        """Keep the points, and move the centres until they are means."""
        ids, points = self._kept(tables, out)
        first = _far_apart(points, self.k)
        centres, nearest = self._means(points, points[first], noted=tables.noted, note=out.note)
        sizes = np.bincount(nearest, minlength=len(first))
        some = np.flatnonzero(sizes)
        names = ids[first]
        columns = dict(zip(self.names, centres[some].T, strict=True))
        _replace(
            out.centres, tables.centres, {"centre": names[some], **columns, "size": sizes[some]}
        )
        _replace(out.members, tables.members, {"id": ids, "centre": names[nearest]})
        return ANEW

    def _kept(self, tables: Any, out: Any) -> tuple[Array, Floats]:
        """Keep the new points; return ids, ascending, and coordinates of all points."""
        came = tables.points
        came = came.filter(came["id"].is_valid())
        ids = array_of(came["id"])
        order = np.argsort(ids, kind="stable")
        last = order[np.flatnonzero(np.append(ids[order][1:] != ids[order][:-1], True))[: len(ids)]]
        came = came.take(pa.array(last))
        is_gone = np.isnan(self._points(came)).any(axis=1)
        if "gone" in came.column_names:
            is_gone |= array_of(came["gone"].fill_null(False)).astype(np.bool_)
        else:
            is_gone |= array_of(came["sign"]) < 0
        now = came.select(["id", *self.names])
        out.held(now.filter(pa.array(~is_gone)))
        out.held.delete(now.select(["id"]).filter(pa.array(is_gone)))
        held = tables.held.all()
        stays = ~np.isin(array_of(held["id"]), array_of(now["id"]))
        every = pa.concat_tables([held.filter(pa.array(stays)), now.filter(pa.array(~is_gone))])
        order = np.argsort(array_of(every["id"]), kind="stable")
        return array_of(every["id"])[order], self._points(every)[order]

    def _points(self, rows: pa.Table) -> Floats:
        columns = [array_of(rows[name]).astype(np.float64) for name in self.names]
        return np.stack(columns, axis=1)

    def _means(
        self, points: Floats, centres: Floats, *, noted: Any, note: Callable[..., None]
    ) -> tuple[Floats, Int64s]:
        """Move centres to the means of the points nearest to them, until no centre moves.

        Args:
            noted: What another attempt of the run stored: the centres after a round, and its
                number.
            note: Stores them.
        """
        done = 0
        if noted:
            columns = [array_of(noted["centres"][name]) for name in self.names]
            centres, done = np.stack(columns, axis=1), noted["round"]["number"][0].as_py()
        nearest = _nearest(points, centres)
        for number in range(done, self.rounds):
            sizes = np.bincount(nearest, minlength=len(centres))
            sums = [np.bincount(nearest, column, len(centres)) for column in points.T]
            means = np.stack(sums, axis=1) / np.maximum(sizes, 1)[:, None]
            means = np.where(sizes[:, None] > 0, means, centres)
            moved = float(np.abs(means - centres).max(initial=0))
            centres, nearest = means, _nearest(points, means)
            if moved <= self.moved:
                break
            note(partial(self._noted, centres, number + 1))
        return centres, nearest

    def _noted(self, centres: Floats, rounds: int) -> dict[str, Any]:
        columns = dict(zip(self.names, centres.T, strict=True))
        return {"centres": columns, "round": {"number": [rounds]}}


def _far_apart(points: Floats, k: int) -> Int64s:
    """Return some different points: the first one, then each the farthest from those before it."""
    chosen, far = list[int](), np.full(len(points), np.inf)
    while len(chosen) < k and far.max(initial=0) > 0:
        chosen.append(int(np.argmax(far)))
        far = np.minimum(far, np.square(points - points[chosen[-1]]).sum(axis=1))
    return np.array(chosen, np.int64)


def _nearest(points: Floats, centres: Floats) -> Int64s:
    """Return the nearest centre of each point, the first of several."""
    nearest = np.empty(len(points), np.int64)
    step = max(1, _DISTANCES_MAX // max(1, centres.size))
    for start in range(0, len(points), step):
        some = points[start : start + step, None]
        nearest[start : start + step] = np.square(some - centres).sum(axis=2).argmin(axis=1)
    return nearest


def _replace(put: Any, before: Any, now: dict[str, Array]) -> None:
    """Replace the records of a view by these; unchanged records are not written."""
    put(now)
    (key, names), *_ = now.items()
    old = array_of(before.all()[key])
    put.delete({key: old[~np.isin(old, names)]})
