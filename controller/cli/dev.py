"""The command `cbp dev`: the service for authors of dataflows; a saved file is registered at once.

A thread beside the service watches the translators' files and the documents, and registers saved
ones through REST, as `cbp register` does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from cbp.client import Client
from cbp.client.calls import Document, content_of_document
from cbp.errors import CbpError, NotFoundError
from controller.cli.dataflows.register import arrival_line, uncorrectable_line
from controller.cli.options import Translators
from controller.cli.saved_code import (
    NOTHING_CHOSEN,
    OnChange,
    SavedFiles,
    choose_next,
    describe_change,
)
from controller.cli.serve import Host, Port, serve
from controller.cli.session import Session
from controller.client.service_client import ServiceClient
from controller.registry import Registry
from controller.settings import Settings
from controller.terminal import print_json, print_text

LOOK_SECONDS = 0.25
ROUNDS_MAX = 50
"""Maximum number of plans for one change; each plan names at least one more stage."""

Say = Callable[..., None]

_T = TypeVar("_T")

Documents = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[DOCUMENT]...",
        help="Documents to register at the start, and again whenever they are saved.",
    ),
]
LocalEngine = Annotated[
    str,
    typer.Option(
        "--engine",
        help="`local` (the default): without Spark, ready in seconds; or `spark`.",
        metavar="local|spark",
        show_default=False,
    ),
]
OnSave = Annotated[
    OnChange,
    typer.Option(
        "--on-change",
        metavar="rebuild|keep",
        help="`rebuild`: a stage whose code was saved recomputes its state from the retained "
        "input; an added stage reads this input, too. `keep`: keep the state as it is; an added "
        "stage reads new input only.",
    ),
]


def dev_command(
    session: Session,
    documents: Documents = None,
    translators: Translators = None,
    on_change: OnSave = "rebuild",
    engine: LocalEngine = "local",
    host: Host = None,
    port: Port = None,
) -> None:
    """Start the service for development: a saved translator or DOCUMENT is registered at once.

    The command watches the files of --translators, or of the project in this folder, and the
    documents. When you save one of them, the dataflows that use it get a new version. An error is
    shown with its file and line, and the old code stays in use.
    """
    for path in documents or ():
        if not path.is_file():
            raise NotFoundError(kind="document", name=str(path), hint="name a YAML or JSON file")
    settings = session.settings
    values: dict[str, Any] = {
        "host": host,
        "port": port,
        "engine": engine,
        "translators": tuple(translators) if translators else None,
    }
    for name, quiet in (("log_level", "WARNING"), ("log_format", "console")):
        if name not in settings.model_fields_set:
            values[name] = quiet

    def started(settings: Settings, registry: Registry) -> None:
        say = _say_json if session.as_json else print_text
        loop = DevelopmentLoop(settings, registry, documents or (), on_change, say)
        threading.Thread(target=loop.run, name="development", daemon=True).start()

    serve(settings, values, as_json=session.as_json, started=started)


def _say_json(line: str, style: str = "") -> None:
    print_json({"message": line, "wrong": style == "red"})


class DevelopmentLoop:
    """Registers saved files, through REST; runs in a separate thread.

    Args:
        on_change: What to do with the state of changed stages.
        say: Prints one line; its second argument is `green`, `red` or `""`.
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        documents: Sequence[Path],
        on_change: OnChange = "rebuild",
        say: Say = print_text,
    ) -> None:
        self._settings, self._registry = settings, registry
        self._documents = {str(path.absolute()): path for path in documents}
        self._on_change, self._say = on_change, say
        self._refused: set[str] = set()
        self._saved = SavedFiles(self._paths())

    def run(self) -> None:
        """Register the documents, and then every file that is saved, forever."""
        pause = threading.Event()
        while not self._is_ready():
            pause.wait(LOOK_SECONDS)
        for path in self._documents:
            self._register(path)
        # Code may have been edited while no service ran. The documents are registered already.
        self._tell("at the start", self.take_code, "at the start", True)
        files = [path for path in self._paths() if path not in self._documents]
        watched = ", ".join(Path(path).name for path in [*files, *self._documents])
        self._say(f"watching      {watched or 'nothing: give --translators FILE or a DOCUMENT'}")
        while True:
            pause.wait(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Check the files once, and register saved ones."""
        saved = self._saved.look(self._paths())
        for path in saved:
            if path in self._documents:
                self._register(path)
        code = [path for path in saved if path not in self._documents]
        if code:
            names = ", ".join(Path(path).name for path in code)
            refused = sorted(self._refused)  # the error may have been in the code
            for path in refused:
                self._register(path)
            self._tell(names, self.take_code, names, bool(refused))

    def _register(self, path: str) -> None:
        """Register a document of the command line, or keep it for when code is saved."""
        document = self._documents[path]
        self._refused.add(path)
        if self._tell(document.name, self.register, document):
            self._refused.discard(path)

    def register(self, path: Path) -> bool:
        """Register a document, or its new version; return whether the document was valid."""
        document = content_of_document(path)
        with self._connect() as client:
            name = client.validate(document).name
            if name in {one.name for one in client.dataflows()}:
                self._change(client, path.name, name, document)
                return True
            registered = client.register(document)
        self._say(f"{path.name}: registered {name}", "green")
        for source in registered.answer["sources"]:
            self._say(f"  {arrival_line(name, source)}")
            if source["uncorrectable"]:
                self._say(f"  {uncorrectable_line(source)}")
        return True

    def take_code(self, saved: str, quiet: bool = False) -> None:
        """Give each dataflow whose code was saved a new version; `quiet` prints only changes."""
        with self._connect() as client:

            def take(name: str) -> bool:
                return self._change(client, saved, name, client.dataflow(name).document)

            names = [one.name for one in client.dataflows()]
            outcomes = [self._tell(f"{saved}: {name}", take, name) for name in names]
        if None in outcomes:
            return
        self._registry.translator_files.refresh()
        problems = self._registry.translator_files.problems()
        for problem in problems:
            self._say(f"{saved}: {problem.message}", "red")
        if not quiet and not problems and not any(outcomes):
            self._say(f"{saved}: saved; this does not change the code of any registered dataflow")

    def _change(self, client: Client, saved: str, name: str, document: Document) -> bool:
        """Change a dataflow if it differs from its registered version; return whether it does."""
        chosen = NOTHING_CHOSEN
        for _ in range(ROUNDS_MAX):
            plan = client.change(name, document, **chosen.query(), dry_run=True)
            if not plan["changed"] and not plan["refused"]:
                return False
            following = choose_next(plan, chosen, self._on_change)
            if following == chosen:
                break
            chosen = following
        if plan["refused"]:
            self._say(f"{saved}: {name} keeps running its old code:", "red")
            for reason in plan["refused"]:
                self._say(f"  {reason['where']}: {reason['message']}", "red")
            if any(reason["code"] == "schema_incompatible" for reason in plan["refused"]):
                self._say(
                    f"  to start over without its tables, run cbp delete {name} --purge, save the "
                    "document again, and put the files into the drop folders again"
                )
            return True
        answer = client.change(name, document, **chosen.query())
        first, *others = describe_change({**answer, "queues": plan["queues"]}, self._on_change)
        self._say(f"{saved}: {first}", "green")
        for line in others:
            self._say(line)
        return True

    def _tell(self, what: str, do: Callable[..., _T], *arguments: Any) -> _T | None:
        """Return what `do` returns; if it fails, print the error and return `None`."""
        try:
            return do(*arguments)
        except CbpError as error:
            self._say(f"{what}: not registered; the version registered before keeps running", "red")
            for line in _lines(error):
                self._say(f"  {line}", "red")
        except OSError as error:
            self._say(f"{what}: {error}", "red")
        return None

    def _connect(self) -> Client:
        return Client.over(ServiceClient(self._settings))

    def _is_ready(self) -> bool:
        try:
            with self._connect() as client:
                return bool(client.rest.get("health", "ready"))
        except CbpError:  # it does not answer, or recovers
            return False

    def _paths(self) -> list[str]:
        return [*self._registry.translator_files.paths(), *self._documents]


def _lines(error: CbpError) -> list[str]:
    """Return each mistake with its place in the author's code; without mistakes the message."""
    mistakes = error.details.get("mistakes") or []
    return [
        f"{one['where']}: {one['message']}{f' ({place})' if (place := one['place']) else ''}"
        for one in mistakes
    ] or [f"{error.message} ({error.as_dict()['error_code']})"]
