"""Answers about drop folders: what is in them, and what became of the files of each source."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from controller.api.answers.schemas import Model


class UnclaimedOut(Model):
    """A name in a drop folder that will not be taken in."""

    name: str
    why: str
    since: datetime | None = Field(description="When it was last changed.")


class GoneOut(Model):
    """A file that went away after it was claimed."""

    name: str
    claim: str
    since: datetime = Field(description="When it was claimed.")
    lost: bool = Field(description="Whether it was acknowledged; if so, drop it again.")


class SourceTroubleOut(Model):
    """What stopped the intake of one source."""

    error: dict[str, Any]
    since: datetime
    tries: int = Field(description="Consecutive failed tries.")
    retry_at: datetime


class BucketOut(Model):
    """What a source's location in a bucket had when it was listed last."""

    location: str
    listed_at: datetime | None = Field(
        description="`null` if the answering instance has not listed it."
    )
    objects: int
    waiting: int = Field(description="New objects that are not fetched yet.")
    left_out: int = Field(description="Objects that will not be taken in.")
    oldest_left_out: list[UnclaimedOut] = Field(description="The first 100 of them.")


class SourceFilesOut(Model):
    """How many files of a source came, and what became of them."""

    arrived: int = Field(description="Files that were claimed.")
    claimed: int = Field(description="Files that are being taken in.")
    accepted: int = Field(description="Files that became an increment.")
    applied: int = Field(description="Files whose increment every reading stage has read.")
    duplicate: int
    quarantined: int = Field(description="Files that wait for a decision.")
    decided: int = Field(description="Quarantined files that were readmitted or discarded.")
    withdrawn: int = Field(description="Files whose increment a roll-back dropped.")
    last_arrival_at: datetime | None


class SourceFolderOut(Model):
    """The content of one source's drop folder."""

    name: str
    folder: str = Field(description="Where producers put files.")
    waiting: int = Field(description="Files that are not claimed yet.")
    waiting_bytes: int
    oldest_at: datetime | None = Field(description="When the oldest of these was last changed.")
    unclaimed: int = Field(description="Names that will not be taken in.")
    oldest_unclaimed: list[UnclaimedOut] = Field(description="The first 100 of them.")
    gone: list[GoneOut] = Field(
        description="Files that disappeared after they were claimed, newest first. Each is listed "
        "for a day, or until a file of that name is taken in; at most 100, seen by this instance."
    )
    files: SourceFilesOut
    rejected: int = Field(description="Records of accepted files that were put aside so far.")
    warning: str = Field(description="What an operator should do; empty if nothing.")
    trouble: SourceTroubleOut | None = Field(
        description="What stopped its intake, as the answering instance knows it."
    )
    bucket: BucketOut | None = Field(
        description="`null` if the source has no location in a bucket."
    )


class SourceFolders(Model):
    """The drop folders of a dataflow."""

    items: list[SourceFolderOut]
