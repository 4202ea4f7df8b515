"""Methods of the client: dataflows, their files, and waiting until all files are applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from cbp.client.answers import (
    Claim,
    Dataflow,
    DataflowDetail,
    Decided,
    Freshness,
    Increment,
    Replaced,
    Validation,
    answer_of,
)
from cbp.client.calls import Calls, Document, When, body_of_document, times
from cbp.client.errors import StagesStoppedError, WaitEndedError
from cbp.client.pages import Pages
from cbp.client.rest import body_of

POLL_SECONDS = 0.1
_UNSETTLED = ("claiming", "claimed")
_IDLE = ("stopped", "paused")


class DataflowCalls(Calls):
    """Methods that show and operate dataflows.

    A `reason` is stored permanently, with the name of the person who asks (`by`).
    """

    def dataflows(self) -> Pages[Dataflow]:
        """Return every dataflow, by name."""
        return self.list_of(Dataflow, "dataflows")

    def dataflow(self, name: str) -> DataflowDetail:
        """Return one dataflow with its sources and stages.

        Raises:
            ResourceMissingError: If no dataflow has this name; all methods with a `name` raise it.
        """
        return self._got(DataflowDetail, "dataflows", name)

    def freshness(self, name: str | None = None) -> Freshness:
        """Return whether one dataflow, or all, are up to date, with the remaining work.

        Each call checks new files, queues, quarantine, and stopped stages.
        """
        return self._got(Freshness, "freshness", dataflow=name)

    def validate(self, document: Document) -> Validation:
        """Check a document as `register` does; changes nothing.

        Raises:
            RequestRefusedError: Code `dataflow_invalid`; `details["mistakes"]` lists every one.
        """
        return self._posted(Validation, "dataflows", "validate", **body_of_document(document))

    def register(self, document: Document) -> DataflowDetail:
        """Register a dataflow; repeating the call with the same document changes nothing.

        Raises:
            RequestRefusedError: As for `validate`.
            ConflictRefusedError: Code `already_exists` if the name has another document; then
                use `change`.
        """
        sent = body_of_document(document)
        return self._posted(DataflowDetail, "dataflows", idempotency_key=_key(), **sent)

    def change(
        self,
        name: str,
        document: Document,
        *,
        keep: Sequence[str] = (),
        rebuild: Sequence[str] = (),
        retained: Sequence[str] = (),
        beside: bool = False,
        expected_version: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Replace a dataflow by a new version; return the changes that the service reports.

        Args:
            document: The new version.
            keep: Stages whose state is kept although their code changed.
            rebuild: Stages that start again with all retained input.
            retained: Added stages that start with the retained input.
            beside: Build new tables while the current ones stay, and swap them in once they are
                ready. The call returns at once; the answer names the `rebuild`.
            expected_version: Refuse the change if the dataflow is at another version.
            dry_run: Change nothing; return the plan.

        Raises:
            ConflictRefusedError: If the dataflow is at another version, or the change is refused.
        """
        query = {
            "keep": list(keep),
            "rebuild": list(rebuild),
            "retained": list(retained),
            "beside": beside,
            "expected_version": expected_version,
            "dry_run": dry_run,
        }
        sent = body_of_document(document)
        answer: dict[str, Any] = self.rest.put("dataflows", name, query=query, **sent)
        return answer

    def delete(self, name: str, *, purge: bool = False) -> None:
        """Delete a dataflow; its tables are kept, unless `purge` removes them permanently.

        A purge also removes the logs of its runs.
        """
        self.rest.delete("dataflows", name, purge=purge)

    def pause(self, name: str, stage: str | None = None) -> Dataflow:
        """Start no more runs of a dataflow, or of one stage; runs in progress finish."""
        part = () if stage is None else ("stages", stage)
        return self._posted(Dataflow, "dataflows", name, *part, "pause")

    def drain(self, name: str) -> Dataflow:
        """Take in no more files, and process queued input; then `desired` is `drained`."""
        return self._posted(Dataflow, "dataflows", name, "drain")

    def resume(self, name: str, stage: str | None = None) -> Dataflow:
        """Resume a dataflow with all its stages, or one stage; failure counts are reset."""
        part = () if stage is None else ("stages", stage)
        return self._posted(Dataflow, "dataflows", name, *part, "resume")

    def retry(self, name: str, stage: str) -> Dataflow:
        """Retry a stage that stopped after failures.

        Raises:
            ConflictRefusedError: Code `stage_paused` if an operator paused the stage; then use
                `resume`.
        """
        return self._posted(Dataflow, "dataflows", name, "stages", stage, "retry")

    def prioritize(self, name: str, stage: str, priority: str) -> Dataflow:
        """Set the priority of a stage: `low`, `normal` or `high`."""
        answer = self.rest.put("dataflows", name, "stages", stage, "priority", priority)
        return answer_of(Dataflow, answer)

    def close_frames(self, name: str, flow: str, *, key: str | None = None) -> dict[str, Any]:
        """Close the open frames of a flow; return the index of the first increment after the close.

        Repeated calls with the same `key` close the frames once; without a key, each call closes.
        """
        path = ("dataflows", name, "flows", flow, "close")
        closed: dict[str, Any] = self.rest.post(*path, idempotency_key=key or _key())
        return closed

    def drop(
        self,
        name: str,
        source: str,
        content: Path | bytes,
        *,
        file: str = "",
        advance: Callable[[int], object] = lambda count: None,
    ) -> Claim:
        """Send a file to a source; it is durable on return, and applied soon after.

        A file with the name and content of an accepted one is not applied again. The file is stored
        under the name `file`, by default its own; bytes need one. `advance` is called with the
        number of bytes that were sent since its last call, as for `FileContent`.
        """
        named = file or (content.name if isinstance(content, Path) else "")
        if not named:
            message = "give a file name for these bytes, as in drop(..., file='monday.jsonl')"
            raise ValueError(message)
        path, query = _of_source(name, source, "files"), {"name": named}
        sent = _sent(content, advance)
        return self._posted(Claim, *path, query=query, idempotency_key=_key(), **sent)

    def replace(
        self,
        name: str,
        source: str,
        content: Path | bytes,
        *,
        file: str,
        reason: str,
        by: str = "",
        rebuild: bool = False,
    ) -> Claim:
        """Replace an accepted file by another one; the differences are applied soon after.

        With `rebuild`, the file is accepted although some stages cannot apply it. These stages stop
        until you begin a `rebuild` of the current version and swap it in.

        Raises:
            ConflictRefusedError: Code `replace_refused` if a stage cannot apply the correction.
        """
        path = _of_source(name, source, "replacements")
        query = {"name": file, "reason": reason, "by": by, "rebuild": rebuild}
        return self._posted(Claim, *path, query=query, idempotency_key=_key(), **_sent(content))

    def plan_replace(
        self, name: str, source: str, content: Path | bytes, *, file: str, rebuild: bool = False
    ) -> Replaced:
        """Show the effects of `replace`, with the same arguments and errors."""
        path, query = _of_source(name, source, "replacements"), {"name": file, "rebuild": rebuild}
        return self._posted(Replaced, *path, "preview", query=query, **_sent(content))

    def retract(
        self, name: str, source: str, *, file: str, reason: str, by: str = "", rebuild: bool = False
    ) -> Claim:
        """Take back all records of an accepted file; arguments and errors as for `replace`."""
        path = _of_source(name, source, "retractions")
        query = {"name": file, "reason": reason, "by": by, "rebuild": rebuild}
        return self._posted(Claim, *path, query=query, idempotency_key=_key())

    def plan_retract(self, name: str, source: str, *, file: str, rebuild: bool = False) -> Replaced:
        """Show the effects of `retract`, with the same arguments and errors."""
        path = _of_source(name, source, "retractions")
        return self._posted(Replaced, *path, "preview", query={"name": file, "rebuild": rebuild})

    def claims(
        self,
        name: str,
        *,
        source: str | None = None,
        status: str | None = None,
        code: str | None = None,
        since: When = None,
        until: When = None,
    ) -> Pages[Claim]:
        """Return the files that arrived, newest first; `code` selects a reason of quarantine."""
        chosen = {"source": source, "status": status, "code": code, **times(since, until)}
        return self.list_of(Claim, "dataflows", name, "claims", **chosen)

    def readmit(
        self,
        name: str,
        source: str,
        claim: Claim | str,
        mended: Path | bytes | None = None,
        *,
        reason: str,
        by: str = "",
        rebuild: bool = False,
    ) -> Claim:
        """Admit a file in quarantine, once; return the claim under which it is taken in.

        Args:
            claim: The file, as returned by `claims(name, status="quarantined")`, or its id.
            mended: A corrected file, or its bytes; `None` admits the file unchanged.
            rebuild: Whether a refused replacement or retraction is admitted although some stages
                cannot apply it; these wait for a rebuild, as for `replace`.

        Raises:
            ConflictRefusedError: If another decision was made, the file cannot be admitted
                unchanged, or a stage cannot apply the replacement that the file asks for.
        """
        decided = self.decide(
            name, source, claim, "readmit", mended=mended, reason=reason, by=by, rebuild=rebuild
        ).readmitted
        assert decided is not None, "the answer to a readmission has no new claim"
        return decided

    def discard(
        self, name: str, source: str, claim: Claim | str, *, reason: str, by: str = ""
    ) -> Claim:
        """Discard a file in quarantine; arguments and errors as for `readmit`."""
        return self.decide(name, source, claim, "discard", reason=reason, by=by).claim

    def restore(self, name: str, source: str, claim: Claim | str) -> Claim:
        """Undo a decision: the file is in quarantine again. Errors as for `readmit`."""
        return self.decide(name, source, claim, "restore").claim

    def decide(
        self,
        name: str,
        source: str,
        claim: Claim | str,
        action: Literal["readmit", "discard", "restore"],
        *,
        mended: Path | bytes | None = None,
        reason: str | None = None,
        by: str | None = None,
        rebuild: bool = False,
    ) -> Decided:
        """Readmit, discard or restore a file, and return its claims; arguments as for `readmit`."""
        id_ = claim if isinstance(claim, str) else claim.id
        as_it_is = action == "readmit" and mended is None
        asked = {"as_it_is": as_it_is or None, "rebuild": rebuild or None}
        return self._posted(
            Decided,
            *_of_source(name, source, "quarantine"),
            id_,
            action,
            query={"reason": reason, "by": by, **asked},
            **({} if mended is None else _sent(mended)),
        )

    def increments(
        self, name: str, flow: str | None = None, *, since: When = None, until: When = None
    ) -> Pages[Increment]:
        """Return the increments of a dataflow or of one flow, newest first."""
        chosen = {"flow": flow, **times(since, until)}
        return self.list_of(Increment, "dataflows", name, "increments", **chosen)

    def increment(self, name: str, flow: str, index: int) -> Increment:
        """Return one increment, without its records."""
        return self._got(Increment, "dataflows", name, "increments", flow, str(index))

    def left(self, name: str) -> dict[str, str]:
        """Return the remaining work of each stage; empty if all input is applied.

        Files that are not accepted yet do not count.
        """
        stages: dict[str, str] = self.rest.get("dataflows", name, "left")["stages"]
        return stages

    def wait(
        self,
        name: str,
        *claims: Claim,
        seconds: float | None = 600.0,
        poll_seconds: float = POLL_SECONDS,
        report: Callable[[dict[str, str]], object] = lambda left: None,
    ) -> None:
        """Wait until these files are taken in and no work is left.

        It does not wait for files in quarantine. With `seconds=None` it waits without a limit.
        `report` is called with the remaining work after each poll.

        Raises:
            StagesStoppedError: If all stages with work left are stopped or paused.
            WaitEndedError: If it takes longer than `seconds`.
        """
        clock = self.rest.clock
        end = None if seconds is None else clock.seconds() + seconds
        while left := self._unsettled(name, claims) or self._left_to_stages(name):
            report(left)
            if end is not None and clock.seconds() >= end:
                raise WaitEndedError(name, seconds or 0.0, left)
            clock.wait(poll_seconds)

    def _unsettled(self, name: str, claims: Sequence[Claim]) -> dict[str, str]:
        waited = {one.id: one for one in claims if one.status in _UNSETTLED}
        left: dict[str, str] = {}
        for source in {one.source for one in waited.values()}:
            ids = {one.id for one in waited.values() if one.source == source}
            for claim in self.claims(name, source=source):
                if claim.id in ids and claim.status in _UNSETTLED:
                    left[claim.path] = "is not taken in yet"
                ids.discard(claim.id)
                if not ids:
                    break
        return left

    def _left_to_stages(self, name: str) -> dict[str, str]:
        left = self.left(name)
        if left:
            stages = self.dataflow(name).stages
            idle = {
                one.name: one.waiting or one.state
                for one in stages
                if one.name in left and one.state in _IDLE
            }
            if idle.keys() >= left.keys():
                left = self.left(name)  # a stage may have done its last work in between
                if left and idle.keys() >= left.keys():
                    raise StagesStoppedError(name, idle)
        return left


def _key() -> str:
    """Return a new idempotency key; all attempts of one call send the same one."""
    return str(uuid4())


def _of_source(name: str, source: str, what: str) -> tuple[str, ...]:
    return ("dataflows", name, "sources", source, what)


def _sent(
    content: Path | bytes, advance: Callable[[int], object] = lambda count: None
) -> dict[str, Any]:
    """Return a file as the content of a request; `advance` as for `FileContent`."""
    return {"content": body_of(content, advance), "content_type": "application/octet-stream"}
