"""Errors of the benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from cbp.errors import InvariantError, OperatingError

__all__ = ["BenchDisagreesError", "BenchFailedError", "BenchRefusedError"]


class BenchRefusedError(OperatingError):
    """An option does not exist, or cannot be combined with another one."""

    code = "bench_refused"
    retryable = False

    def __init__(self, option: str, why: str) -> None:
        super().__init__(f"--{option}: {why}", option=option)
        self.why = why


class BenchFailedError(OperatingError):
    """A candidate failed, or its process ended."""

    code = "bench_failed"
    retryable = False

    def __init__(self, candidate: str, why: str) -> None:
        super().__init__(f"{candidate}: {why}", candidate=candidate)


class BenchDisagreesError(InvariantError):
    """Candidates that read the same increments do not hold the same result."""

    code = "bench_disagrees"

    def __init__(self, differences: Sequence[str]) -> None:
        super().__init__(
            "the candidates do not agree: " + "; ".join(differences), differences=list(differences)
        )
