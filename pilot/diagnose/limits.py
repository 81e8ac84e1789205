"""What a log cannot tell: said beside every answer, so that silence is not read as health."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pilot.diagnose.numbers import interval, num_points, span
from pilot.diagnose.plain import counted, step_word
from pilot.readers.points import ODD_STEPS
from pilot.series.types import GRAD_NORM, LEARNING_RATE, LOSS, Diagnosis, Trace
from pilot.series.window import is_window

FEW_POINTS = 64  # fewer do not fill the window of the series engine, which widens its limits then
# What measures quality where the loss does not.
_INSTEAD = {"rl": "the reward", "preference": "the reward margin and accuracy"}
# Formats of the Hugging Face Trainer and what is built on it (TRL, axolotl, LLaMA-Factory).
_HF_FORMATS = ("trainer_state", "trainer_log", "dicts")
_ONE_RANK_FORMATS = ("nanogpt",)  # prints the last micro-batch of its first process


class Limit(NamedTuple):
    """What the log lacks, in a few words, and the question that therefore stays open."""

    lack: str
    open_question: str


def limits(trace: Trace, diagnosis: Diagnosis) -> list[Limit]:
    """The limits of this log; what matters most comes first."""
    found = [
        *_of_the_loss(trace),
        *_of_the_level(diagnosis),
        *_of_the_steps(trace),
        *_of_other_series(trace, diagnosis),
    ]
    if diagnosis.alarm:
        look_alike = "data, learning rate and precision look alike in a loss curve"
        found.append(Limit("no cause", f"the cause: {look_alike}; the test above separates them"))
    return found


def _of_the_loss(trace: Trace) -> list[Limit]:
    found = []
    if LOSS not in trace.train:
        lack = "no training loss"
        return [Limit(lack, f"spikes and divergence: there is {lack} in the log")]
    if trace.objective in _INSTEAD:
        lack = "a loss that does not measure quality"
        instead = _INSTEAD[trace.objective]
        found.append(Limit(lack, f"quality: this objective has {lack}; look at {instead}"))
    points = num_points(trace.train[LOSS])
    if points < FEW_POINTS:
        lack = f"only {counted(points, 'point')} of the loss"
        found.append(Limit(lack, f"small effects: {lack}, too few to know its noise"))
    return found


def _of_the_level(diagnosis: Diagnosis) -> list[Limit]:
    if diagnosis.levelled:
        return []
    lack = "a loss without a level"
    return [Limit(lack, f"spikes, shifts and trends: {lack}, so they were not looked for")]


def _of_the_steps(trace: Trace) -> list[Limit]:
    found, every, name = [], interval(trace), step_word(trace)
    if every > 1 and LOSS in trace.train:
        lack = f"one point every {every} {name}s"
        found.append(Limit(lack, f"spikes of single steps: {lack} averages or misses them"))
    covered = span(trace)
    if trace.axis == "steps" and covered and is_window(covered[1], every):
        lack = f"begins at {name} {covered[1]}"
        found.append(Limit(lack, f"what came before: the log {lack}"))
    if trace.axis == "records":
        has_odd = any(note.startswith(ODD_STEPS) for note in trace.notes)
        lack = "no usable step numbers" if has_odd else "no step numbers"
        why = "its steps are no whole numbers below 2^53" if has_odd else "the log names none"
        found.append(Limit(lack, f"at which step: {why}, so records are counted"))
    return found


def _of_other_series(trace: Trace, diagnosis: Diagnosis) -> list[Limit]:
    found = []
    if GRAD_NORM not in trace.train:
        lack = "no gradient norm"
        found.append(Limit(lack, f"whether the gradient moved first: {lack} was logged"))
    if _hides_nan(trace, diagnosis):
        what = "the Hugging Face Trainer logs a NaN loss as 0.0 or as the mean of its neighbours"
        lack = "NaN may be logged as 0.0"
        found.append(Limit(lack, f"hidden NaNs: {what} (logging_nan_inf_filter, on by default)"))
    if not trace.validations:
        lack = "no validation loss"
        found.append(Limit(lack, f"whether it got better on other data: {lack} was logged"))
    if LEARNING_RATE not in trace.train:
        lack = "no learning rate"
        found.append(Limit(lack, f"where the warm-up ended: {lack} was logged"))
    if trace.format in _ONE_RANK_FORMATS:
        lack = "the loss of one rank and one micro-batch"
        found.append(Limit(lack, f"other ranks: this format prints {lack}"))
    return found


def _hides_nan(trace: Trace, diagnosis: Diagnosis) -> bool:
    """Whether NaNs may hide in the log: not where a loss of 0 was found and told."""
    if any(event.kind == "zero_loss" for event in diagnosis.events):
        return False
    if trace.format not in _HF_FORMATS or LOSS not in trace.train:
        return False
    return bool(np.isfinite(trace.train[LOSS].values).all())
