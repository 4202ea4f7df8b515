"""Settings of a table with Delta's change data feed; pure.

    delta.enableChangeDataFeed    for readers: the feed is complete
    cbp.changes                   the flow of the same stage from which the feed is made
    cbp.view_key                  the columns of the view's key, or all, with their types

Only tables of views have a feed, and only from their creation on. A table that an earlier release
created never gets one, since its older entries have no change files.
"""

from __future__ import annotations

from collections.abc import Mapping

from cbp.model.flow.schema import Schema

ENABLED, FEATURE = "delta.enableChangeDataFeed", "changeDataFeed"
_FLOW, _KEY = "cbp.changes", "cbp.view_key"

LATER = (_FLOW, _KEY)
"""Settings that tables of earlier releases do not have."""


def feed_settings(flow: str, key: Schema) -> dict[str, str]:
    """Return the settings of a view's table."""
    return {ENABLED: "true", _FLOW: flow, _KEY: ", ".join(f"{f.name} {f.type}" for f in key.fields)}


def feed_flow(configuration: Mapping[str, str]) -> str:
    """Return the output from which a table's change feed is made; `""` if it has no feed."""
    return configuration.get(_FLOW, "") if configuration.get(ENABLED) == "true" else ""


def feed_key(configuration: Mapping[str, str]) -> Schema:
    """Return the columns of the key of a view that has a feed."""
    return Schema.parse(configuration[_KEY])


def with_feed_of(current: Mapping[str, str], declared: Mapping[str, str]) -> dict[str, str]:
    """Return a table's settings for a new version; it has a feed if both versions declare one."""
    feed = {ENABLED, *LATER}
    both = {name: value for name, value in current.items() if name not in feed}
    both |= {name: value for name, value in declared.items() if name not in feed}
    if feed_flow(current) and feed_flow(declared):
        both |= {name: declared[name] for name in feed}
    return both
