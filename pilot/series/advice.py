"""Per kind of event: what to look at first, the smallest decisive test, what only then."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A row of the decision table: one sentence part each, for people."""

    look_first: str
    test: str
    then: str


_OBJECTIVE = Advice(
    look_first="label mask, labels, reduction of the loss",
    test="split and rank invariance, label audit, alignment of logits and labels",
    then="repair the objective",
)
_STEPS = Advice(
    look_first="grad norm, clip coefficient, relative update, learning rate",
    test="compare these on paired runs: the learning rate x 1/3, clipping on and off",
    then="change the one hyper-parameter that was confirmed",
)
_RUIN = Advice(
    look_first="what changed at that step (data, stage); relative update, optimizer state",
    test="run on from a healthy checkpoint from before the event",
    then="cure the cause, then resume from the last healthy checkpoint with its optimizer state, "
    "learning rate x 1/3 to 1/10; never keep a suspect optimizer state",
)

TABLE: dict[str, Advice] = {
    "single_spike": Advice(
        look_first="the batch of that step (tokens, lengths, source, labels), grad norm",
        test="replay the same batch and ordinary batches at the same weights",
        then="repair damaged data; a legitimate hard sample is kept",
    ),
    "consecutive_spikes": _STEPS,
    "never_recovers": _RUIN,
    "level_shift": Advice(
        look_first="what changed at that step: data source, schedule, resume; then grad norm",
        test="run on from a checkpoint before the shift, once with the same and once with other "
        "batches",
        then="repair the data if only these batches shift; else change the one hyper-parameter "
        "that was confirmed",
    ),
    "slow_divergence": Advice(
        look_first="relative update, learning rate, growth of the grad norm",
        test="a paired run from a checkpoint before the rise with the learning rate x 1/3",
        then="lower the learning rate only if the paired run falls; resume from before the rise",
    ),
    "nonfinite_first_step": Advice(
        look_first="inputs, activations, loss",
        test="the single batch in FP32",
        then="repair the first non-finite operation, or the precision setting",
    ),
    "nonfinite": Advice(
        look_first="the batch of that step, the grad norm before it, the precision",
        test="replay that batch from the last healthy checkpoint, in training precision and FP32",
        then="repair the first non-finite operation or the batch; resume from before the event",
    ),
    "zero_loss": Advice(
        look_first="number of supervised tokens per batch, label mask, grad norm",
        test="count the labels that are not masked in one batch; then that batch in FP32",
        then="repair the labels or the precision; a trainer may log a NaN loss as 0.0",
    ),
    "grad_norm_alarm": Advice(
        look_first="the batch of that step, the clip coefficient, the loss of the next steps",
        test="replay the same batch and ordinary batches at the same weights",
        then="nothing if the loss did not react; else as for spikes in a row",
    ),
    "grad_norm_trend": Advice(
        look_first="learning rate, clip coefficient, weight decay, norm of the weights",
        test="a paired run with the learning rate x 1/3",
        then="nothing while the loss falls; else change the one hyper-parameter confirmed",
    ),
    "early_damage": Advice(
        look_first="learning rate and warm-up, relative update of the first steps",
        test="a paired run from the start with the learning rate x 1/3 or a longer warm-up",
        then="start again from the original weights with the setting that was confirmed",
    ),
    "no_progress": Advice(
        look_first="learning rate, trainable parameters, label mask",
        test="over-fit one small batch; compare with the learning rate x 3",
        then="repair what keeps that batch from being learned",
    ),
    "validation_not_improving": _OBJECTIVE,
    "validation_worsening": Advice(
        look_first="number of epochs, the step of the lowest validation, overlap of the sets",
        test="validate on a held-out part of the training data",
        then="stop at the lowest validation, or use more data, fewer epochs, a lower rate; if the "
        "held-out part does not fall either, repair the objective",
    ),
}


VARIANTS: dict[tuple[str, str], Advice] = {
    ("grad_norm_alarm", "reacted"): Advice(
        look_first="the batch of that step, the clip coefficient, the loss of the next steps",
        test="replay the same batch and ordinary batches at the same weights",
        then="repair damaged data; if ordinary batches do it too, as for spikes in a row: the "
        "learning rate x 1/3, clipping on and off",
    ),
    ("no_progress", "rising"): Advice(
        look_first="learning rate, order and mix of the data, trainable parameters",
        test="a paired run from the start with the learning rate x 1/3",
        then="lower the learning rate only if the paired run falls; else over-fit one small batch",
    ),
    ("zero_loss", "precision"): Advice(
        look_first="precision and loss scale, inputs, the first values that are not finite",
        test="one batch in FP32, and the logged loss of it without the trainer's NaN filter",
        then="repair the precision or the first non-finite operation; if FP32 gives 0 too, count "
        "the labels that are not masked",
    ),
}


def advice(kind: str, hint: str = "") -> Advice:
    """The row of the decision table for an event's ``kind`` (one of ``types.KINDS``) and hint.

    Raises:
        KeyError: no such kind.
    """
    return VARIANTS.get((kind, hint), TABLE[kind])
