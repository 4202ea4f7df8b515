"""Continuous bulk processing: keep derived tables up to date, one increment at a time."""

from cbp.sdk import (
    DataflowBuilder,
    Input,
    Output,
    Schema,
    State,
    Translate,
    TranslateRecords,
    by,
    dataflow_from_document,
)

__all__ = [
    "DataflowBuilder",
    "Input",
    "Output",
    "Schema",
    "State",
    "Translate",
    "TranslateRecords",
    "by",
    "dataflow_from_document",
]
