"""Sinks of a dataflow: where the records of a flow or of a view are published to. Plain values.

    flow -> increment after increment -> files, a Delta table, or a webhook
    view -> its changes, applied       -> a Delta table with exactly the view's records

A sink is a reader of its flow, like a stage: increments that it has not published are kept.
`controller.sinks` publishes them. This module defines what a document may declare.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from cbp.errors import Mistake
from cbp.errors.message_limits import listed
from cbp.model.dataflow.node_mistakes import choice_mistake, name_mistake
from cbp.model.flow.schema import Schema, is_name

FILE_SUFFIXES = {"parquet": ".parquet", "csv": ".csv"}
SINK_TARGETS = (*FILE_SUFFIXES, "delta", "webhook")
BEGINNINGS = ("beginning", "now")
SINKS_MAX = 100
_NO_CSV = frozenset({"ARRAY", "MAP", "STRUCT", "BINARY"})


@dataclass(frozen=True, slots=True)
class SinkNode:
    """A sink, as a document declares it.

    Attributes:
        to: One of `SINK_TARGETS`.
        flow: The flow whose increments are published; `""` if it has a view.
        view: The view that is mirrored, as `stage.view`; `""` if it has a flow.
        path: The folder that it writes, absolute or below the service's first sink folder.
        url: The address to which a webhook posts.
        secret: Name of the secret that signs a webhook's requests; `""` means unsigned.
        begin: `beginning` means from the oldest kept increment; `now` from the next one.
        paused: Whether it begins paused.
    """

    name: str
    to: str
    flow: str = ""
    view: str = ""
    path: str = ""
    url: str = ""
    secret: str = ""
    begin: str = "beginning"
    paused: bool = False

    @property
    def reads(self) -> str:
        """The flow that the sink reads; the flow of a view has the view's name."""
        return self.flow or self.view


def sink_mistakes(
    sinks: Mapping[str, SinkNode],
    flows: Mapping[str, Schema],
    *,
    views: Collection[str],
    messages: Collection[str],
) -> Iterator[Mistake]:
    """Find the mistakes in the sinks of a dataflow.

    `messages` are the flows that only the stage that writes them reads.
    """
    if len(sinks) > SINKS_MAX:
        message = f"the dataflow has {len(sinks)} sinks, but the limit is {SINKS_MAX}: remove some"
        yield Mistake("sinks_too_many", "sinks", message)
    paths: dict[str, str] = {}
    for sink in sinks.values():
        where = f"sinks.{sink.name}"
        yield from name_mistake(where, sink.name)
        yield from _target_mistakes(sink, where)
        yield from _flow_mistakes(sink, where, flows, views, messages)
        path = posixpath.normpath(sink.path)
        other = paths.setdefault(path, sink.name) if sink.path else sink.name
        if other != sink.name:
            message = f"the sink {other!r} has the same path; choose another path"
            yield Mistake("sink_path_twice", f"{where}.path", message)


def _target_mistakes(sink: SinkNode, where: str) -> Iterator[Mistake]:
    if sink.to not in SINK_TARGETS:
        yield from choice_mistake("sink_to_unknown", f"{where}.to", sink.to, SINK_TARGETS)
        return
    yield from choice_mistake("sink_begin_unknown", f"{where}.begin", sink.begin, BEGINNINGS)
    needed, other = ("url", "path") if sink.to == "webhook" else ("path", "url")
    if getattr(sink, other):
        message = f"a {sink.to} sink has no field `{other}`; give `{needed}` instead"
        yield Mistake("sink_field_unfit", f"{where}.{other}", message)
    elif sink.to != "webhook" and sink.secret:
        message = "only a webhook can be signed; remove `secret`"
        yield Mistake("sink_field_unfit", f"{where}.secret", message)
    elif not getattr(sink, needed):
        message = f"a {sink.to} sink needs the field `{needed}`"
        yield Mistake("sink_field_missing", f"{where}.{needed}", message)
    elif sink.to == "webhook":
        yield from _url_mistakes(sink, where)
    elif "\0" in sink.path or ".." in sink.path.split("/"):
        message = f"got {sink.path!r}; a path must not contain `..` or a null character"
        yield Mistake("sink_path_invalid", f"{where}.path", message)


def _url_mistakes(sink: SinkNode, where: str) -> Iterator[Mistake]:
    try:
        parts = urlsplit(sink.url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        secret = parts.username is not None or parts.password is not None
    except ValueError:
        valid, secret = False, False
    message = ""
    if not valid or any(c.isspace() or not c.isprintable() for c in sink.url):
        message = "expected the address of an http or https service"
    elif secret:
        advice = "remove them, and let `secret` sign the requests instead"
        message = f"the address contains a user or a password; {advice}"
    if message:
        yield Mistake("sink_url_invalid", f"{where}.url", message)
    if sink.secret and not is_name(sink.secret):
        message = "expected the name of a secret (a-z, 0-9, '_'), not the secret itself"
        yield Mistake("sink_secret_invalid", f"{where}.secret", message)


def _flow_mistakes(
    sink: SinkNode,
    where: str,
    flows: Mapping[str, Schema],
    views: Collection[str],
    messages: Collection[str],
) -> Iterator[Mistake]:
    if bool(sink.flow) == bool(sink.view):
        message = "name either a `flow`, whose increments are published, or a `view` to mirror"
        yield Mistake("sink_flow_missing", where, message)
    elif sink.view:
        if sink.view not in views:
            message = f"there is no view {sink.view!r}; views: {listed(sorted(views)) or 'none'}"
            yield Mistake("sink_view_unknown", f"{where}.view", message)
        if sink.to != "delta":
            advice = "to publish the changes of the view, use `flow` instead of `view`"
            message = f"only a delta sink can mirror a view; {advice}"
            yield Mistake("sink_view_needs_delta", f"{where}.view", message)
        if sink.begin != "beginning":
            message = "a mirror always shows the current view; remove `begin`"
            yield Mistake("sink_field_unfit", f"{where}.begin", message)
    elif sink.flow not in flows:
        message = f"there is no flow {sink.flow!r}; use one of {listed(sorted(flows))}"
        yield Mistake("flow_unknown", f"{where}.flow", message)
    elif sink.flow in messages:
        carries = f"{sink.flow!r} carries messages that a stage sends to itself"
        message = f"{carries}; publish another output"
        yield Mistake("sink_flow_messages", f"{where}.flow", message)
    elif sink.to == "csv":
        nested = [f.name for f in flows[sink.flow].fields if f.type.kind in _NO_CSV]
        if nested:
            message = f"CSV cannot hold the columns {listed(nested)}; use parquet or delta"
            yield Mistake("sink_column_unfit", f"{where}.to", message)
