"""The command `cbp serve`: starts the service."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from cbp.errors.masks import mask_credentials
from controller.access.secret_text import new_secret
from controller.cli.options import Translators, project_here
from controller.cli.session import Session
from controller.registry import Registry, TranslatorFiles
from controller.server.port import check_port
from controller.settings import Settings, load_settings
from controller.terminal import print_json, print_text

SIGN_IN_PATH = "/ui/sign-in"
"""A copy of the API's constant, which takes a second to import."""

STARTUP_FAILURE = 3
"""Exit status of a service that could not start; the same as uvicorn's."""

Host = Annotated[str | None, typer.Option(help="Address to listen on.")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on.")]
Engine = Annotated[
    str | None,
    typer.Option(
        help="`local`: without Spark, ready in seconds; `spark` (the default): on Spark.",
        metavar="local|spark",
    ),
]
Readers = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=64,
        help="Processes that answer reads over REST, besides the service's own (CBP_READERS).",
    ),
]


def serve_command(
    session: Session,
    host: Host = None,
    port: Port = None,
    translators: Translators = None,
    engine: Engine = None,
    readers: Readers = None,
) -> None:
    """Start the service, and run it until Ctrl-C or SIGTERM.

    A document names a class of a file as `translator: MyClass`, or as `myfile:MyClass` if several
    files have a class of that name. In the folder of a project whose pyproject.toml has the entry
    points cbp.translators, the service also finds these without --translators. A registration uses
    the code that is on disk. A registered dataflow continues with its registered code.

    On the first signal the service starts no more runs. Requests and runs have `drain_seconds`
    to finish; runs that take longer are cancelled, and run again after the next start. The exit
    status is 0. If the service still hangs 10 seconds later, its process ends with status 4.
    A second signal ends it at once. No stop loses committed work.
    """
    values: dict[str, Any] = {
        "host": host,
        "port": port,
        "engine": engine,
        "readers": readers,
        "translators": tuple(translators) if translators else None,
    }
    serve(session.settings, values, as_json=session.as_json)


def serve(
    settings: Settings,
    values: Mapping[str, Any],
    *,
    as_json: bool,
    started: Callable[[Settings, Registry], None] = lambda _settings, _registry: None,
) -> None:
    """Run the service until it is stopped.

    Args:
        values: Settings that take precedence; `None` means not given.
        started: Called with the settings and the translators before the service answers.
    """
    chosen = {name: value for name, value in values.items() if value is not None}
    if not (chosen.get("translators") or settings.translators):
        chosen |= project_here(settings)
    settings = load_settings(**chosen) if chosen else settings
    check_port(settings.host, settings.port)
    # Before anything is created, such as the folder of the token file.
    os.umask(int(settings.umask, 8))
    settings.ensure_token()
    code = new_secret()
    # Imported here: it loads the whole service, which no other command needs.
    from controller.server.process import run_server

    def announce(registry: Registry) -> None:
        _say_where(settings, code, registry.translator_files, as_json=as_json)
        started(settings, registry)

    if not run_server(settings, code, announce):
        raise typer.Exit(code=STARTUP_FAILURE)


def _say_where(settings: Settings, code: str, files: TranslatorFiles, *, as_json: bool) -> None:
    where = {
        "url": settings.url,
        "link": f"{settings.url}{SIGN_IN_PATH}#code={code}",
        "token_file": str(settings.token_file),
        "drop_root": str(settings.drop_root),
        "tables": mask_credentials(settings.tables),
    }
    if as_json:
        print_json(where)
        return
    given = settings.token is not None
    print_text(f"service       {where['url']}")
    if problem := _in_the_clear(settings):
        print_text(f"              ({problem})", "red")
    print_text(f"page          {where['link']}")
    print_text("              (signs in once, within ten minutes; cbp link prints another one)")
    print_text(f"token         {'from CBP_TOKEN' if given else 'in ' + where['token_file']}")
    _print_translators(settings, files)
    print_text(f"drop folders  {where['drop_root']}/<dataflow>/<source>/incoming")
    print_text(f"tables        {where['tables']}")


def _in_the_clear(settings: Settings) -> str:
    """Return what is wrong if tokens can be read on the network; else `""`.

    Secure cookies say that a proxy ends TLS before the service.
    """
    if not settings.allow_remote or settings.tls_cert is not None or settings.secure_cookies:
        return ""
    return (
        "other machines can connect without TLS, so tokens and records can be read on the "
        "network: set CBP_TLS_CERT and CBP_TLS_KEY, or CBP_SECURE_COOKIES=true behind a proxy "
        "that terminates TLS"
    )


def _print_translators(settings: Settings, files: TranslatorFiles) -> None:
    """Print which names the files offer, and what is wrong with those that cannot be loaded."""
    names, problems = files.names(), files.problems()
    if names:
        print_text(f"translators   {', '.join(sorted(names))}")
    elif settings.translators and not problems:
        where = ", ".join(map(str, settings.translators))
        print_text(f"translators   none: {where} has no class that is a translator", "red")
    for problem in problems:
        print_text(f"translators   {problem.message}", "red")
        print_text("              (fix the file, then register again; no restart is needed)")
