"""What an author imports: translators, their inputs and outputs, and the builder."""

from cbp.model.connector import Connector, Decision
from cbp.model.publication import PublishPolicy
from cbp.model.retention import RetentionWish
from cbp.model.routing import ALL, All, Multicast
from cbp.model.runnable import (
    Align,
    CountWindow,
    KeyWindow,
    Phase,
    Phases,
    RunAll,
    RunAny,
    StaticTable,
)
from cbp.model.schema import Schema
from cbp.sdk.builder import DataflowBuilder
from cbp.sdk.declare import Input, Loopback, Output, State, by, by_sql, framed, route
from cbp.sdk.document import dataflow_from_document
from cbp.sdk.forms import TranslateArrow, TranslateSql
from cbp.sdk.translate import Translate, TranslateRecords

__all__ = [
    "ALL",
    "Align",
    "All",
    "Connector",
    "CountWindow",
    "DataflowBuilder",
    "Decision",
    "Input",
    "KeyWindow",
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
    "Translate",
    "TranslateArrow",
    "TranslateRecords",
    "TranslateSql",
    "by",
    "by_sql",
    "dataflow_from_document",
    "framed",
    "route",
]
