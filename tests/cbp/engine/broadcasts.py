"""Records to all groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.driver import Driver

Figures = Mapping[str, float]


def order(k: str, verb: str, *to: str, id_: int = 0) -> dict[str, Any]:
    return {"k": k, "verb": verb, "id": id_, "to": list(to)}


def broadcast(driver: Driver, *, groups: int, records: int) -> Figures:
    """Return the figures of so many records to `ALL` of so many keys of state."""
    if not driver.epochs["stage"]:
        keys = [f"k{n}" for n in range(groups)]
        driver.feed("s_orders", [order(key, "write", key) for key in keys])
        driver.run_until_idle()
    driver.feed("s_items", [{"id": n, "to": ["*kept"]} for n in range(records)])
    driver.run_until_idle()
    assert driver.figures[-1]["groups"] == groups
    return driver.figures[-1]


def sent_to_all(driver: Driver, groups: int) -> tuple[Figures, Figures]:
    """Return the figures of an `ALL` to so many keys of state, and of one address bound by all."""
    keys = [f"k{n}" for n in range(groups)]
    by_all = broadcast(driver, groups=groups, records=5)
    binds = [order(key, "bind", "x") for key in keys]
    driver.feed("s_orders", [*binds, order("k0", "send", "@x", "@x")])
    driver.run_until_idle()
    got = driver.outputs("stage.calls")[-1]
    assert sum(len(row["mail"]) for row in got) == groups
    return by_all, driver.figures[-1]
