"""Errors of the benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cbp.errors import InvariantError, OperatingError

__all__ = ["BenchDisagreesError", "BenchFailedError", "BenchRefusedError", "SoakGrewError"]


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


class SoakGrewError(OperatingError):
    """During a soak something grew with the number of runs; nothing may."""

    code = "soak_grew"
    retryable = False

    def __init__(
        self, runs: int, grown: Mapping[str, float], growth_max: float, disk_per_run_max: float
    ) -> None:
        growth_text = ", ".join(f"{words} by {growth:.2f}" for words, growth in grown.items())
        super().__init__(
            f"these grew between the middle and the end of {runs} runs: {growth_text}. Allowed are "
            f"a factor of {growth_max} (--growth-max), {disk_per_run_max:.0f} bytes per run "
            "(--disk-per-run-max) and no files",
            runs=runs,
            grown=dict(grown),
            growth_max=growth_max,
            disk_per_run_max=disk_per_run_max,
        )
