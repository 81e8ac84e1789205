"""What a log holds (a trace of series) and what is found in it (events). Numbers only, no files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

LOSS, GRAD_NORM, LEARNING_RATE = "loss", "grad_norm", "learning_rate"
LOSS_SCALE, SKIPPED, EPOCH, TOKENS = "loss_scale", "skipped", "epoch", "num_tokens"
TRAIN_NAMES = (LOSS, GRAD_NORM, LEARNING_RATE, LOSS_SCALE, SKIPPED, EPOCH, TOKENS)

NOTE, WARN, FAIL = "note", "warn", "fail"
LOW, MEDIUM, HIGH = "low", "medium", "high"

KINDS = (
    "single_spike",
    "consecutive_spikes",
    "never_recovers",
    "level_shift",
    "slow_divergence",
    "nonfinite_first_step",
    "nonfinite",
    "zero_loss",
    "grad_norm_alarm",
    "grad_norm_trend",
    "early_damage",
    "no_progress",
    "validation_not_improving",
    "validation_worsening",
)
STATES = (
    "healthy",
    "unstable",
    "diverged",
    "dead",
    "no_progress",
    "overfitting",
    "too_short",
    "unreadable",
)
ALARM_STATES = ("unstable", "diverged", "dead")


@dataclass(frozen=True, kw_only=True)
class Series:
    """One quantity over a run: ``steps`` (int64 [n], not decreasing) and ``values`` (float64 [n]).

    A value that was logged and is not finite is NaN or inf here; one that was not logged is absent:
    the series has no entry for that step.
    """

    steps: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Everything a reader got out of one run.

    ``train`` has the names of ``TRAIN_NAMES`` that occur (``loss`` in nats per token or whatever
    the trainer's objective is; ``grad_norm`` before clipping); ``validations`` the loss of each
    validation set by the set's name ("" for the only, unnamed one), lower is better. ``axis`` says
    what ``steps`` count: ``steps`` (the trainer's own), ``epochs``, or ``records`` (the log names
    none: 1 for the first record with a loss). ``objective``: ``lm``, ``rl``, ``preference``,
    ``other`` or ``unknown``. ``notes`` are short sentences about what the reader had to decide
    (lines dropped, steps repeated, a resume), for people.
    """

    source: str
    format: str
    axis: str
    train: Mapping[str, Series]
    validations: Mapping[str, Series] = field(default_factory=dict)
    objective: str = "unknown"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Event:
    """A classified stretch of a series.

    ``first_step`` and ``last_step`` lie on the trace's own axis. ``recovered_step`` is the first
    step back at the level before the event (null: not until the end of the series, or it has no
    meaning for the kind). ``is_open``: the series ended before the kind could be decided for good.
    ``size_sigma`` is the size in robust standard deviations of the series' own noise, ``size_frac``
    as a fraction of the level before it. ``grad_norm_lead_steps``: by how many steps a reaction of
    the gradient norm came before the first high record of the loss (null: no gradient norm, or no
    reaction up to then).
    ``hint`` chooses a variant of the kind's row in the decision table (``advice``).
    """

    kind: str
    series: str
    first_step: int
    last_step: int
    severity: str
    confidence: str
    recovered_step: int | None = None
    is_open: bool = False
    size_sigma: float | None = None
    size_frac: float | None = None
    grad_norm_lead_steps: int | None = None
    detail: str = ""
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The events of a trace, in order of first step, and what they amount to.

    ``state`` is one of ``STATES``; ``alarm`` is true exactly for ``ALARM_STATES``. ``main`` is the
    index in ``events`` of the one that decides the state (null: none). Not ``levelled``: the loss
    has no level to compare with (a policy loss: by the objective, or by its zeros and negative
    values), so spikes, shifts and trends were not looked for; only what is not finite or dead.
    """

    state: str
    alarm: bool
    events: tuple[Event, ...] = ()
    main: int | None = None
    levelled: bool = True
