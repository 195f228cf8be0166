# SPDX-License-Identifier: Apache-2.0
"""Evaluation results, which a schedule of the codec's ratio may follow (include/tithe/schedule.h)."""

from collections.abc import Sequence

from tithe import _core


def agree(of_ranks: Sequence[dict[str, float | None]]) -> dict[str, float | None]:
    """Merges the evaluations of all ranks: the means of losses and accuracies, and the common learning rate."""
    out: dict[str, float | None] = {}
    for name in ("loss", "accuracy"):
        given = [one[name] for one in of_ranks if one[name] is not None]
        out[name] = sum(given) / len(given) if given else None
    rates = {one["learning_rate"] for one in of_ranks if one["learning_rate"] is not None}
    if len(rates) > 1:
        raise ValueError(f"learning rates differ between ranks: {', '.join(map(str, sorted(rates)))}")
    return {**out, "learning_rate": rates.pop() if rates else None}


class Evaluations:
    """Checks the evaluations for one session. Only report() changes the session."""

    def __init__(self, options: _core.Options) -> None:
        self.schedule = options.schedule
        self.follows_loss, self.follows_rate = _core.schedule_follows(options.schedule, options.codec)
        self.kind: str | None = None  # "loss" or "accuracy": the kind of the earlier evaluations

    def read(
        self, loss: float | None, accuracy: float | None, learning_rate: float | None
    ) -> tuple[float | None, float | None]:
        """Returns loss and learning rate for the session. An accuracy becomes the loss 1 - accuracy."""
        if loss is not None and accuracy is not None:
            raise ValueError("give loss= or accuracy=, not both: the schedule follows one of them")
        if loss is None and accuracy is None and learning_rate is None:
            raise ValueError("pass the evaluation: loss= or accuracy=, and learning_rate= if the schedule follows it")
        if accuracy is not None and not 0 <= accuracy <= 1:
            raise ValueError(f"accuracy={accuracy}: must lie in 0 .. 1")
        if learning_rate is not None and not 0 < learning_rate < float("inf"):
            raise ValueError(f"learning_rate={learning_rate}: must be finite and more than 0")
        kind = "accuracy" if accuracy is not None else "loss" if loss is not None else self.kind
        if self.kind not in (None, kind):
            raise ValueError(f"this session received {self.kind} before, got {kind}: stay with one of them")
        if self.follows_loss and loss is None and accuracy is None:
            raise ValueError(f"schedule '{self.schedule}' follows the evaluations: give loss= or accuracy=")
        if self.follows_rate and learning_rate is None:
            raise ValueError(f"schedule '{self.schedule}' follows the learning rate: give learning_rate=")
        self.kind = kind
        return (1.0 - accuracy if accuracy is not None else loss), learning_rate

    def report(self, session: _core.Session, loss: float | None, learning_rate: float | None) -> None:
        if learning_rate is not None:
            session.learning_rate(learning_rate)
        if loss is not None:
            session.evaluated(loss)
