"""Count and add up records by windows of time, on columns: many windows at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cbp import TranslateArrow
from cbp.errors import DefinitionError, Mistake
from stages.translators.windows import Windows

__all__ = ["WindowsArrow"]


class WindowsArrow(TranslateArrow, Windows):
    """Records and totals by windows of time; the results are those of `Windows`.

    Args:
        schema, by, at, seconds, every: As in `Windows`.
        add: As in `Windows`; a column of whole numbers.
    """

    def __init__(
        self, schema: str, by: str, at: str, seconds: float, every: float = 0.0, add: str = ""
    ) -> None:
        super().__init__(schema, by, at, seconds, every, add)
        if "DECIMAL" in self.windows.schema.rpartition(" total ")[2]:
            message = f"{add} has decimals; name a column of whole numbers, or use windows"
            raise DefinitionError(Mistake("parameter_invalid", "windows_arrow.add", message))

    # The other form has the declarations; here a call gets many groups.
    def translate(self, groups: Any, out: Any) -> None:  # type: ignore[override]
        """Add the signs of many windows, and the values with their signs."""
        records = groups.sums("rows", "sign") + groups.sums("windows", "records")
        finish = pc.add(groups.keys.column("begin"), pa.scalar(self._length, pa.duration("us")))
        rows = groups.keys.append_column("finish", finish)
        rows = rows.append_column("records", pa.array(records))
        if self._add is not None:
            rows = rows.append_column("total", pa.array(self._totals(groups)))
        out.windows(rows.filter(pa.array(records != 0)))

    def _totals(self, groups: Any) -> npt.NDArray[np.int64]:
        """Return the new total of each window.

        Raises:
            OverflowError: A total has more than 64 bits.
        """
        values = groups.rows.column(self._add).fill_null(0).to_numpy().astype(np.int64)
        signed = values * groups.rows.column("sign").to_numpy()
        totals = np.array(groups.sums("windows", "total"))
        rough = totals.astype(np.float64)
        for sums in (totals, rough):  # NumPy reports no overflow, but floats show it
            np.add.at(sums, groups.ids("rows"), signed)
        if len(rough) and np.abs(rough).max() >= float(1 << 63):
            message = "a total has more than 64 bits"
            raise OverflowError(message)
        return totals
