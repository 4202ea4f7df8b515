"""PublishPolicy: how often a dataflow's tables show the results of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

EPOCHS_MAX = 1_000


SECONDS_MAX = 86_400.0


SECONDS_DEFAULT = 60.0


@dataclass(frozen=True, slots=True)
class PublishPolicy:
    """How long a dataflow runs before it publishes; the first limit that is reached counts.

    More epochs per publication make tables less fresh and restarts slower. They save writing the
    deletion vectors of the epochs in between, which pays off if the state is huge and the
    increments are small.

    Attributes:
        epochs: Epochs of a stage after which all stages publish; 1: after every epoch.
        seconds: Longest time that a finished record waits, as long as the service runs.
    """

    epochs: int = 1
    seconds: float = SECONDS_DEFAULT

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Yield the field and a message for each value that is out of bounds."""
        if not 1 <= self.epochs <= EPOCHS_MAX:
            yield "epochs", f"{self.epochs} epochs; use 1 (publish every epoch) to {EPOCHS_MAX}"
        if not 0 < self.seconds <= SECONDS_MAX:
            yield (
                "seconds",
                f"{self.seconds} seconds; use more than 0, at most {SECONDS_MAX:.0f} (a day)",
            )


EVERY_EPOCH = PublishPolicy()
