"""The folders and hosts to which the operator allows sinks to write.

    CBP_SINK_ROOTS    folders below which sinks write; by default `<root>/sinks`
    CBP_SINK_SECRETS  folder of the secrets that sign webhooks; by default `<root>/secrets`

`controller.allowed_folders` judges paths. Addresses of webhooks are judged when they are dialled
(`controller.outbound`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cbp.errors import Mistake
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.sinks import SinkNode
from controller.allowed_folders import AllowedFolders
from controller.sinks.errors import SinkPlaceError, SinkSecretError

_SECRET_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class SinkPlaces:
    """The allowed targets.

    Attributes:
        roots: Folders, absolute; relative paths begin at the first one.
        taken: Folders of the service itself, to which no sink writes.
    """

    roots: tuple[Path, ...]
    secrets: Path
    taken: tuple[Path, ...] = ()

    def mistakes(self, dataflow: Dataflow) -> Iterator[Mistake]:
        """Yield the targets of a dataflow's sinks that are not allowed."""
        for sink in dataflow.sinks.values():
            if sink.path and (why := self._allowed.refusal(sink.path)):
                yield Mistake("sink_place_refused", f"sinks.{sink.name}.path", why)

    def folder(self, sink: SinkNode) -> tuple[str, str]:
        """Return the folder of a sink and its root, after following links.

        Raises:
            SinkPlaceError: If the folder is not allowed.
        """
        allowed = self._allowed
        if why := allowed.refusal(sink.path):
            raise SinkPlaceError(sink.path, why)
        folder = allowed.locate(sink.path)
        return folder, allowed.root_of(folder)

    def secret(self, sink: SinkNode) -> bytes | None:
        """Return the secret that signs a webhook's requests; `None` if they are not signed.

        Raises:
            SinkSecretError: If the secret cannot be read, or if other users can read it.
        """
        if not sink.secret:
            return None
        path = self.secrets / sink.secret
        try:
            status = path.stat()
            if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
                raise SinkSecretError(sink.secret, str(path), "other users can read the file")
            with path.open("rb") as file:
                value = file.read(_SECRET_BYTES_MAX).strip()
        except OSError as error:
            why = error.strerror or str(error)
            raise SinkSecretError(sink.secret, str(path), why) from error
        if not value:
            raise SinkSecretError(sink.secret, str(path), "the file is empty")
        return value

    @property
    def _allowed(self) -> AllowedFolders:
        return AllowedFolders("CBP_SINK_ROOTS", self.roots, self.taken)
