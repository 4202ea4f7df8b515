"""The command `cbp infer`: the declaration of a source that a file suggests, to check and paste.

cbp infer visits.csv
cbp infer visits.csv --name visits >>clicks.yaml
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from controller.cli.session import Session
from controller.terminal import one_line

File = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="File that has records of the source.")
]
Name = Annotated[
    str, typer.Option(help="Name of the source; by default derived from the name of the file.")
]
Records = Annotated[
    int,
    typer.Option("--records", min=1, max=1_000_000, help="Maximum number of records to read."),
]


def infer_command(session: Session, file: File, name: Name = "", records: Records = 10_000) -> None:
    """Print the declaration of a source that a file suggests; nothing is registered."""
    from controller.ingest.reader.source_suggestion import suggest_source  # loads pyarrow

    made = suggest_source(file, records=records).to_json()
    name = name or source_name(file)
    session.exit_if_json({"name": name, **made})
    typer.echo(declaration(name, made, file.name), nl=False)


def source_name(file: Path) -> str:
    """Return a valid name of a source that a file's name suggests."""
    text = re.sub(r"[^a-z0-9]+", "_", file.name.partition(".")[0].lower()).strip("_")
    return (text if text[:1].isalpha() else f"s_{text}")[:63].strip("_")


def declaration(name: str, made: dict[str, object], file: str) -> str:
    """Return the suggestion as YAML, with its doubts as comments."""
    sampled = "the whole file" if made["whole_file"] else "a sample from its beginning"
    lines = [f"# from {one_line(file)}: {made['sampled_records']} records, {sampled}"]
    doubts = made["doubts"]
    assert isinstance(doubts, list)
    lines += [f"# check: {one_line(str(doubt))}" for doubt in doubts]
    lines += ["sources:", f"  {name}:", f"    format: {made['format']}"]
    lines.append(f"    schema: {json.dumps(made['schema'])}")
    if made["on_bad_records"]:
        lines.append(f"    on_bad_records: {json.dumps(made['on_bad_records'])}")
    if made["options"]:
        lines.append(f"    options: {json.dumps(made['options'], ensure_ascii=False)}")
    return "\n".join([*lines, ""])
