"""The commands `cbp translators`, `cbp examples` and `cbp versions`: what a document is made of.

cbp translators                  what a document may name, with inputs, outputs and state
cbp translators top_k            what one of them does, and its parameters
cbp translators --translators clicks.py
                                 with those of a file, without a service
cbp examples crawl_queue         a ready dataflow as YAML, to begin with
cbp versions clicks --diff       what each version of a dataflow changed
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from cbp.client.errors import ServiceUnreachableError, TokenMissingError
from cbp.errors import NotFoundError
from controller.cli.options import DataflowName, Listing, project_here
from controller.cli.session import Session
from controller.registry import Registry, TranslatorFiles
from controller.registry.library import describe_example, describe_translator
from controller.terminal import Cell, clock, print_items, print_more, print_text

Example = Annotated[str | None, typer.Argument(help="Print the document of this dataflow.")]
Translator = Annotated[str | None, typer.Argument(help="Describe this translator.")]
Paths = Annotated[
    list[Path] | None,
    typer.Option(
        "--translators",
        metavar="PATH",
        help="Do not ask a service: list the translators of installed packages, and those of this "
        "file, folder or project. Can be repeated.",
    ),
]
Diff = Annotated[bool, typer.Option("--diff", help="Show the lines that each version changed.")]


def translators_command(
    session: Session, name: Translator = None, translators: Paths = None
) -> None:
    """List the translators that a document can use, or describe one with its parameters.

    Without a service, the list comes from the installed packages and the project in this folder.
    """
    answer = None if translators else _asked(session, "translators")
    if answer is None:
        registry = _registry(session, translators or ())
        items = [describe_translator(registry, one) for one in registry.names()]
        answer = {"items": items, "cursor": None}
    if name is not None:
        one = _named(answer["items"], name)
        session.exit_if_json(one)
        _describe(one)
        return
    session.exit_if_json(answer)
    columns: dict[str, Cell] = {
        "translator": "name",
        "package": "package",
        "inputs -> outputs": _ports,
        "what it does": lambda one: one["problem"] or one["summary"],
    }
    print_items(answer["items"], columns, empty="no allowed package offers a translator")


def examples_command(session: Session, name: Example = None) -> None:
    """List the ready dataflows of installed packages, or print the document of one."""
    answer = _asked(session, "examples", *([name] if name else []))
    if answer is None:
        items = [describe_example(one) for one in _registry(session).ready_dataflows(name)]
        answer = items[0] if name else {"items": items, "cursor": None}
    session.exit_if_json(answer)
    if name:
        print_text(answer["problem"] or answer["text"].rstrip("\n"))
        return
    columns: dict[str, Cell] = {
        "name": "name",
        "package": "package",
        "what it is": lambda one: one["problem"] or one["summary"],
    }
    print_items(
        answer["items"], columns, empty="no installed package contains a ready-made dataflow"
    )


def versions_command(
    session: Session,
    dataflow: DataflowName,
    version: Annotated[
        int | None, typer.Option(min=1, help="Print this version's document.")
    ] = None,
    diff: Diff = False,
    listing: Listing = Listing(limit=50),
) -> None:
    """List the versions of a dataflow, newest first; or print one."""
    if version is not None:
        answer = session.fetch("dataflows", dataflow, "versions", str(version))
        print_text(answer["text"].rstrip("\n"))
        return
    answer = session.fetch("dataflows", dataflow, "versions", **listing)
    if diff:
        for one in answer["items"]:
            print_text(f"version {one['version']}, {clock(one['at'])}", "bold")
            for line in one["difference"] or ():
                print_text(line)
    else:
        columns: dict[str, Cell] = {
            "version": "version",
            "registered at": (clock, "at"),
            "stages changed": (", ".join, "anew"),
        }
        print_items(answer["items"], columns, empty="no version")
    print_more(answer)


def _asked(session: Session, *path: str) -> Any:
    """Return the service's answer; if no service answers, print a remark and return `None`."""
    try:
        return session.rest.get(*path)
    except (ServiceUnreachableError, TokenMissingError):
        said = "this list comes from the packages that are installed on this machine"
        print_text(f"no service answers; {said}", on_stderr=True)
        return None


def _registry(session: Session, paths: Sequence[Path] = ()) -> Registry:
    """Return the translators that a service started in this folder would find."""
    settings = session.settings
    paths = paths or settings.translators or project_here(settings).get("translators", ())
    files = TranslatorFiles(tuple(paths))
    for problem in files.problems():
        print_text(problem.message, on_stderr=True)
    return Registry(settings.allowed_packages, files=files)


def _named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for one in items:
        if one["name"] == name:
            return one
    near = get_close_matches(name, [one["name"] for one in items])
    hint = f"did you mean {' or '.join(near)}?" if near else "to list them: cbp translators"
    raise NotFoundError("translator", name, hint=hint)


def _describe(one: dict[str, Any]) -> None:
    if one["problem"]:
        print_text(f"{one['name']}: {one['problem']}")
        return
    print_text(f"{one['name']}, from the package {one['package']}\n\n{one['description']}")
    for declared in one["parameters"].values():
        print_text(f"  parameter {declared}")
    for kind, ports in (one["ports"] or {}).items():
        for port in ports:
            key = f", key {port['key']}" if port["key"] else ""
            print_text(f"  {kind.removesuffix('s')} {port['name']}: {port['columns']}{key}")


def _ports(one: dict[str, Any]) -> str:
    if one["ports"] is None:
        return "depends on parameters" if not one["problem"] else ""
    inputs, outputs = (
        ", ".join(port["name"] for port in one["ports"][kind]) for kind in ("inputs", "outputs")
    )
    return f"{inputs} -> {outputs}"
