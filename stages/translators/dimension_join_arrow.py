"""Join the records of a view with a table that is looked up, on columns: many keys at a time."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from cbp import TranslateArrow
from cbp.errors import AuthorMisuse, LookupSeveralError
from stages.bag_tables import GROUP, changes_of, current, ids_of, null_keys
from stages.translators.dimension_join import DimensionJoin

__all__ = ["DimensionJoinArrow"]


class DimensionJoinArrow(TranslateArrow, DimensionJoin):
    """Join each record with that of a table; the results are those of `DimensionJoin`.

    A call reads all records of its groups, where `DimensionJoin` reads those that changed.
    """

    keep: ClassVar[bool] = False

    # The other form has the declarations; here a call gets many groups.
    def translate(self, groups: Any, out: Any) -> None:  # type: ignore[override]
        """Join the records of many groups with the table's.

        Raises:
            AuthorMisuse: The table has several records of a key.
        """
        sizes = groups.sizes("dimension")
        if np.any(sizes > 1):
            message = "dimension: a key has several records; name a view whose key is `on`"
            raise AuthorMisuse(LookupSeveralError, message)
        bag, changes = self._bag, changes_of(groups, "rows")
        rows = current(groups, "known", changes, bag.second, counted=bag.counted)
        out.known(rows.drop_columns([GROUP]))
        places = np.where((sizes > 0) & ~null_keys(groups), groups.offsets("dimension")[:-1], -1)
        places = places[ids_of(rows)]
        about = groups.dimension.take(pa.array(places, mask=places < 0))
        for at in self._added:
            rows = rows.append_column(about.field(at), about.column(at))
        rows = rows.select(self._names)
        out.joined(rows if self._keeps_unmatched else rows.filter(pa.array(places >= 0)))
