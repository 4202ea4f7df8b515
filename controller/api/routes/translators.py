"""Translators that a document may name."""

from __future__ import annotations

from cbp.errors import CbpError
from controller.api.answers.schemas import Page, TranslatorOut
from controller.api.routing.dependencies import RegistryDep
from controller.api.routing.routers import router
from controller.registry import Registry

__all__ = ["routes"]

routes = router("translators")


@routes.get("/translators")
def list_translators(registry: RegistryDep) -> Page[TranslatorOut]:
    """List the translators of the allowed packages, by name."""
    return Page(items=[_shown(registry, name) for name in registry.names()])


def _shown(registry: Registry, name: str) -> TranslatorOut:
    try:
        info = registry.describe(name)
    except CbpError as error:  # one broken package must not hide the others
        return TranslatorOut(
            name=name, package="", summary="", parameters={}, problem=error.message
        )
    return TranslatorOut(
        name=info.name,
        package=info.package,
        summary=info.summary,
        parameters=dict(info.parameters),
        problem=None,
    )
