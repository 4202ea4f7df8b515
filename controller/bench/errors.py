"""What can go wrong in a benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from cbp.errors import InvariantError, OperatingError

__all__ = ["BenchDisagreesError", "BenchRefusedError"]


class BenchRefusedError(OperatingError):
    """A choice that the benchmark does not have, or not together with another one."""

    code = "bench_refused"
    retryable = False

    def __init__(self, option: str, why: str) -> None:
        super().__init__(f"--{option}: {why}", option=option)


class BenchDisagreesError(InvariantError):
    """Candidates that read the same increments do not hold the same result."""

    code = "bench_disagrees"

    def __init__(self, differences: Sequence[str]) -> None:
        super().__init__(
            "the candidates do not agree: " + "; ".join(differences), differences=list(differences)
        )
