"""Decimal arithmetic in author's code: 38 digits, like a DECIMAL, and no implicit rounding.

Python's own context has 28 digits and rounds silently. It belongs to the thread, so a setting by
one author would change the numbers of the next author. Therefore every call of an author's function
runs in a new context, and the context of the thread is restored after it.

    with author_decimals():
        translate(key, group, out)

Guaranteed (tests/cbp/sdk/test_author_decimals.py): a result that would lose a digit raises
`decimal.Inexact` in the author's line. To round on purpose, switch that error off:

    with decimal.localcontext(traps=[]):
        price = round(price, 2)
"""

from __future__ import annotations

import decimal
from contextlib import AbstractContextManager

_EXACT = decimal.Context(
    prec=38,
    rounding=decimal.ROUND_HALF_EVEN,
    flags=[],
    traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow, decimal.Inexact],
)


def author_decimals() -> AbstractContextManager[decimal.Context]:
    """Return a context manager in which author's code computes with DECIMAL."""
    return decimal.localcontext(_EXACT)


def digits_text(context: decimal.Context) -> str:
    """Return the parts of a context that determine results: digits, rounding, limits, traps."""
    traps = sorted(signal.__name__ for signal, is_trap in context.traps.items() if is_trap)
    limits = context.Emin, context.Emax, context.capitals, context.clamp
    return f"{context.prec} digits, {context.rounding}, {limits}, traps {', '.join(traps)}"


def decimals_changed() -> bool:
    """Return whether code called inside `author_decimals` has changed the context."""
    return digits_text(decimal.getcontext()) != digits_text(_EXACT)
