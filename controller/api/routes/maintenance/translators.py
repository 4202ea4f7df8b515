"""Translators that a document may name, and ready dataflows to begin with."""

from __future__ import annotations

from pydantic import Field

from controller.api.answers.schemas import Model, Page, TranslatorOut
from controller.api.routing.dependencies import RegistryDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.registry.library import describe_example, describe_translator

routes = router("translators")


class ExampleOut(Model):
    """A ready dataflow that an installed package offers."""

    name: str
    package: str
    summary: str
    text: str = Field(description="The document as YAML; empty if it cannot be loaded.")
    problem: str = Field(description="Why it cannot be loaded; empty if it can.")


@routes.get("/translators")
@needs(Scope.VIEWER)
def list_translators(registry: RegistryDep) -> Page[TranslatorOut]:
    """List the translators of the allowed packages, by name."""
    items = [TranslatorOut(**describe_translator(registry, name)) for name in registry.names()]
    return Page(items=items)


@routes.get("/examples")
@needs(Scope.VIEWER)
def list_examples(registry: RegistryDep) -> Page[ExampleOut]:
    """List the ready dataflows of the allowed packages, by name, with their documents."""
    return Page(items=[ExampleOut(**describe_example(one)) for one in registry.ready_dataflows()])


@routes.get("/examples/{example}", responses=problems(404))
@needs(Scope.VIEWER)
def show_example(example: str, registry: RegistryDep) -> ExampleOut:
    """Show one ready dataflow."""
    return ExampleOut(**describe_example(registry.ready_dataflows(example)[0]))
