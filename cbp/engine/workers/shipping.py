"""Shipping of an author's functions and classes to workers, checked by fingerprint.

A pickle names a function by its module, so a worker runs the file that it finds on its own disk
when it imports the module. So the name is sent with the fingerprint of the driver's code, and a
worker that has loaded other code reports that instead of calling it.

Classes and functions of plain files that a service was given travel with their text instead
(`cbp.model.author.source_modules`), and need no file on the worker. Functions that are sent by
value, such as lambdas, are the driver's anyway.

Guaranteed (tests/spark/test_shipping.py): no task calls an author's code that differs from the
driver's. This covers all that goes through Spark's pickler.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter
from types import FunctionType, ModuleType
from typing import Any

from pyspark.cloudpickle import cloudpickle

from cbp.engine.workers.carried_errors import carrying_errors
from cbp.errors import AuthorUnsendableError, CodeNotLoadedError, text_of
from cbp.model.author.code_fingerprint import Code, fingerprint, is_authors
from cbp.model.author.source_modules import arrive, travelling
from cbp.model.dataflow.nodes import StageNode

_dumps: Callable[[Any], bytes] = cloudpickle.dumps


@cache
def ship_with_fingerprints() -> None:
    """Make Spark's pickler send author's code by fingerprint, or as text, in this process."""
    pickler: Any = cloudpickle.Pickler
    look_up: Any = cloudpickle._lookup_module_and_qualname
    plain = pickler.reducer_override

    def reducer_override(self: Any, thing: Any) -> Any:
        if isinstance(thing, type | FunctionType | ModuleType) and (text := travelling(thing)):
            return arrive, text
        is_named = isinstance(thing, type | FunctionType) and is_authors(thing)
        if is_named and (found := look_up(thing)) is not None:
            module, name = found
            return arrived, (module.__name__, name, fingerprint(thing).text)
        return plain(self, thing)

    pickler.reducer_override = reducer_override


def pickled(work: Any) -> bytes:
    """Pickle work with the fingerprints of the author's code that it names."""
    ship_with_fingerprints()
    return _dumps(work)


def refuse_unsendable(nodes: Iterable[StageNode]) -> None:
    """Raise `AuthorUnsendableError` for the stage, and its attribute, that cannot be sent."""
    for node in nodes:
        translate = node.translator.translate
        if (error := _pickling_error(translate)) is None:
            continue
        owner = getattr(translate, "__self__", None)
        attributes = getattr(owner, "__dict__", {})
        name = next((name for name, one in attributes.items() if _pickling_error(one)), "")
        what = f"self.{name}, a {type(attributes[name]).__name__}," if name else "the code"
        raise AuthorUnsendableError(
            stage=node.name,
            function=getattr(translate, "__qualname__", node.translator.name),
            place=node.translator.place,
            cause=f"{what} cannot be sent to the process that runs the stage "
            f"({type(error).__name__}: {text_of(error)}): create it in translate, or in a "
            "functools.cached_property, not in __init__ or a closure",
            attribute=name,
        ) from error


def _pickling_error(thing: Any) -> Exception | None:
    try:
        pickled(thing)
    except Exception as error:  # an object's own pickling may raise anything
        return error
    return None


def arrived(module: str, name: str, text: str) -> Any:
    """Return the object that the worker has loaded by this name, if its fingerprint matches.

    Otherwise a `RuntimeError` has a `CodeNotLoadedError` in its text (`carrying_errors`).
    """
    thing = _loaded(module, name)
    own = fingerprint(thing)
    if own.text != text:
        with carrying_errors():
            raise CodeNotLoadedError(module, name, text, json.dumps(dict(own.parts)))
    return thing


def _loaded(module: str, name: str) -> Any:
    return attrgetter(name)(importlib.import_module(module))


def with_differences(error: CodeNotLoadedError) -> CodeNotLoadedError:
    """Return a worker's error with the names of the code that differs there."""
    module, name, sent = (error.details[key] for key in ("module", "name", "sent"))
    there = Code.of(json.loads(error.details["loaded"]))
    differing = "; ".join(fingerprint(_loaded(module, name)).differences(there))
    return CodeNotLoadedError(module, name, sent, "", differing or "its code")
