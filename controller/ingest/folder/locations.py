"""Prefixes of buckets that an operator allows: where sources may find objects.

A document is written by someone who may register dataflows, not by the operator of the service. So
a location outside of these prefixes is refused at registration, and again whenever it is listed:
the settings may be others by then. The address of the service that has the buckets, and its key,
are settings only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cbp.errors import Mistake
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.source_location import BucketPrefix

__all__ = ["AllowedLocations", "location_mistakes"]


@dataclass(frozen=True, slots=True)
class AllowedLocations:
    """Prefixes below which documents may name locations; none by default.

    Attributes:
        prefixes: As `BucketPrefix.parse` reads them.
    """

    prefixes: tuple[str, ...] = ()

    def refusal(self, location: BucketPrefix) -> str:
        """Return why a location is not allowed; `""` if it is."""
        if any(location.is_below(BucketPrefix.parse(one)) for one in self.prefixes):
            return ""
        return (
            f"{location} is not below any prefix in CBP_SOURCE_LOCATIONS; ask the operator to add "
            "one"
        )


def location_mistakes(dataflow: Dataflow, allowed: AllowedLocations) -> Iterator[Mistake]:
    """Yield the locations of a dataflow's sources that the settings do not allow."""
    for source in dataflow.sources.values():
        if source.location and (why := allowed.refusal(BucketPrefix.parse(source.location))):
            yield Mistake("location_refused", f"sources.{source.name}.location", why)
