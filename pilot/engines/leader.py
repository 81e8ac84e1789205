"""One program, several processes: the first one decides, the others do the same on their engine.

The program of an arm runs in process 0 only, where files are written. Each request that it makes of
its engine, and each step that it asks for, is told to the others before it is done; they do it at
the same point of their own loop, with an observer that is silent. What a request needs of all of
them (a gradient, a gathered random state) is thereby there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pilot.engines.base import Capabilities, Engine, Program, StepRequest
from pilot.engines.team import Team, team
from pilot.errors import PilotError
from pilot.own_rates import OwnRates
from pilot.probe import Probe
from pilot.records import Outcome, StepRecord, ValidationRecord
from pilot.restored import Restored

_RUN, _STEP, _END, _AGAIN = "run", "step", "end", "again"


class BeginAgain(Exception):
    """The arm begins again in the same process: at its start instead of at a fork."""


def lead(engine: Engine) -> Engine:
    """``engine``, in an arm of several processes with its requests told to the others."""
    together = team()
    return engine if together is None else Leader(engine, together)


class Leader:
    """The engine of process 0. Whatever all processes must do is told first.

    Args:
        engine: this process's own engine.
        together: the processes.
    """

    def __init__(self, engine: Engine, together: Team) -> None:
        self._engine, self._team = engine, together

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do."""
        return self._engine.capabilities

    @property
    def device(self) -> torch.device:
        """Where this process's model is."""
        return self._engine.device

    @property
    def built_dtypes(self) -> Sequence[str]:
        """The dtypes that the user's code gave the weights."""
        return self._engine.built_dtypes

    @property
    def step(self) -> int:
        """The last finished step."""
        return self._engine.step

    @property
    def model(self) -> torch.nn.Module:
        """This process's model; all processes have the same weights."""
        return self._engine.model

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """This process's optimizer."""
        return self._engine.optimizer

    @property
    def probe(self) -> Probe | None:
        """What measures the steps of all processes."""
        return self._engine.probe

    def run(self, program: Program) -> Outcome:
        """Run ``program`` here; the others take every step with it."""
        self._team.tell((_RUN, None))
        return self._engine.run(self._told(program))

    def _told(self, program: Program) -> Program:
        while True:
            try:
                request = next(program)
            except StopIteration as done:
                self._team.tell((_END, None))
                outcome: Outcome = done.value
                return outcome
            self._team.tell((_STEP, request))
            yield request

    def flush(self) -> None:
        """Hand out the record of the last step; needs nobody else."""
        self._engine.flush()

    def rows_of(self, step: int) -> tuple[int, ...]:
        """The row ids of ``step``, of all processes."""
        return self._engine.rows_of(step)

    def try_rows(self, row_ids: Sequence[int]) -> float:
        """Forward and backward on one micro-batch; each process does the same rows."""
        self._team.tell(("try_rows", (tuple(row_ids),)))
        return self._engine.try_rows(row_ids)

    def request_validation(self, at: str) -> list[ValidationRecord]:
        """Evaluate all validation sets; each process does all rows."""
        self._team.tell(("request_validation", (at,)))
        return self._engine.request_validation(at)

    def validation_secs(self) -> float:
        """Expected seconds of one validation."""
        self._team.tell(("validation_secs", ()))
        return self._engine.validation_secs()

    @property
    def restored(self) -> Restored | None:
        """What was restored of the user's checkpoint."""
        return self._engine.restored

    def own_rates(self) -> OwnRates | None:
        """The rates that the user's own scheduler plans; needs nobody else."""
        return self._engine.own_rates()

    def change_groups(
        self, rate_scales: Sequence[float], weight_decays: Sequence[float] | None = None
    ) -> None:
        """Change the parameter groups, in all processes."""
        self._team.tell(("change_groups", (rate_scales, weight_decays)))
        self._engine.change_groups(rate_scales, weight_decays)

    def snapshot(self) -> Mapping[str, Any]:
        """The exact state, with the random states of all processes."""
        self._team.tell(("snapshot", ()))
        return self._engine.snapshot()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot, in all processes."""
        self._team.tell(("restore", None))
        self._engine.restore(self._team.share(state))

    def replay_step(self, state: Mapping[str, Any], row_ids: Sequence[int]) -> StepRecord:
        """Restore ``state`` and train one step on ``row_ids``, shared out to the processes."""
        self._team.tell(("replay_step", tuple(row_ids)))
        return self._engine.replay_step(self._team.share(state), row_ids)


def begin_again() -> None:
    """Tell the others that the arm begins again at its start."""
    together = team()
    if together is not None:
        together.tell((_AGAIN, None))


def follow(engine: Engine, together: Team) -> None:
    """Do on ``engine`` what process 0 does, until its program ends.

    Raises:
        BeginAgain: the arm begins again.
        PeerLost: another process is gone.
        RecipeFailure: the user's code raised in this process.
    """
    while True:
        word, given = _heard(together)
        if word == _RUN:
            engine.run(_followed(engine, together))
            return
        _do(engine, together, word, given)


def _followed(engine: Engine, together: Team) -> Program:
    while True:
        word, given = _heard(together)
        if word == _STEP:
            request: StepRequest = given
            yield request
        elif word == _END:
            return Outcome(status=Outcome.COMPLETED, last_step=engine.step)
        else:
            _do(engine, together, word, given)


def _heard(together: Team) -> tuple[str, Any]:
    message: tuple[str, Any] = together.tell(None)
    return message


def _do(engine: Engine, together: Team, word: str, given: Any) -> None:
    if word == _AGAIN:
        raise BeginAgain
    if word == "restore":
        engine.restore(together.share(None))
    elif word == "replay_step":
        engine.replay_step(together.share(None), given)
    elif word in ("try_rows", "request_validation", "validation_secs", "snapshot", "change_groups"):
        getattr(engine, word)(*given)
    else:
        raise PilotError(f"process {together.rank} was told {word!r}, which it does not know")
