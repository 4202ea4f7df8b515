"""What verifications found: the part of the store that keeps their results over restarts."""

from __future__ import annotations

from typing import Protocol

from controller.store.records import VerificationRecord

__all__ = ["VerificationLog"]


class VerificationLog(Protocol):
    """Results of verifications; no folder has them, so they are lost with the database."""

    def keep_verification(self, record: VerificationRecord, *, most: int) -> None:
        """Keep the result of a verification, in place of an earlier result of it.

        Args:
            record: The result.
            most: How many of its dataflow are kept (>= 1); the oldest ones go.

        Raises:
            NotFoundError: If there is no such dataflow.
        """
        ...

    def verification(self, id_: str) -> VerificationRecord:
        """Return the result of a verification; raises `NotFoundError`."""
        ...

    def verifications(self, dataflow: str) -> list[VerificationRecord]:
        """Return the results of a dataflow's verifications, newest first."""
        ...
