"""Continuous bulk processing: keep derived tables up to date, one increment at a time."""

from cbp.model.dataflow.dataflow import Dataflow, PublishPolicy
from cbp.model.dataflow.routing import ALL, All, Multicast
from cbp.model.dataflow.runnable import (
    Align,
    CountWindow,
    KeyWindow,
    Phase,
    Phases,
    RunAll,
    RunAny,
    StaticTable,
)
from cbp.model.flow.connector import Connector, Decision
from cbp.model.flow.retention import RetentionWish
from cbp.model.flow.schema import Schema
from cbp.sdk.builder import DataflowBuilder
from cbp.sdk.declare import (
    Aggregate,
    Input,
    Loopback,
    Output,
    State,
    Timers,
    View,
    by,
    by_sql,
    framed,
    route,
)
from cbp.sdk.document import dataflow_from_document
from cbp.sdk.forms import TranslateArrow, TranslateRun, TranslateSql
from cbp.sdk.lookups import Lookup
from cbp.sdk.translate import Translate, TranslateRecords

__all__ = [
    "ALL",
    "Aggregate",
    "Align",
    "All",
    "Connector",
    "CountWindow",
    "Dataflow",
    "DataflowBuilder",
    "Decision",
    "Input",
    "KeyWindow",
    "Lookup",
    "Loopback",
    "Multicast",
    "Output",
    "Phase",
    "Phases",
    "PublishPolicy",
    "RetentionWish",
    "RunAll",
    "RunAny",
    "Schema",
    "State",
    "StaticTable",
    "Timers",
    "Translate",
    "TranslateArrow",
    "TranslateRecords",
    "TranslateRun",
    "TranslateSql",
    "View",
    "by",
    "by_sql",
    "dataflow_from_document",
    "framed",
    "route",
]
