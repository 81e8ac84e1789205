"""Updates that an optimizer skipped, as the lines between the records say it."""

from __future__ import annotations

import pytest

from tests.readers.text_logs import points, read_all, read_one, with_junk

APEX = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {scale}"
DEEPSPEED = (
    "[INFO] [loss_scaler.py:9:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. "
    "Attempted loss scale: 99, reducing to {scale}"
)
FAIRSEQ = "| WARNING: overflow detected, setting loss scale to: {scale}"
FAIRSEQ_NOTE = (
    "| INFO | fairseq.trainer | NOTE: gradient overflow detected, ignoring gradient, "
    "setting loss scale to: {scale}"
)
OWN = "WARNING - detected a non-finite gradient (norm=inf); skipping optimizer step."


@pytest.mark.parametrize("shape", [APEX, DEEPSPEED, FAIRSEQ, FAIRSEQ_NOTE, OWN])
def test_a_skipped_update_belongs_to_the_record_that_follows(tmp_path, shape):
    lines = []
    for step in range(1, 21):
        lines += [shape.format(scale=2.0 ** (20 - step))] if step > 10 else []
        lines += [f"step {step} | loss: {3 - step / 100:.2f}"]
    trace = read_one(tmp_path, with_junk(lines), "text")
    assert len(points(trace, "loss")) == 20
    assert points(trace, "skipped") == dict.fromkeys(range(11, 21), 1.0)
    if shape is not OWN:
        assert points(trace, "loss_scale") == {s: 2.0 ** (20 - s) for s in range(11, 21)}


def test_one_overflow_in_a_record_of_many_steps_is_no_skipped_record(tmp_path):
    lines = []
    for step in range(100, 601, 100):
        lines += [APEX.format(scale=8.0)] * (60 if step == 500 else 1)
        lines += [f"step {step} | loss: 2.5"]
    skipped = points(read_one(tmp_path, lines, "text"), "skipped")
    assert skipped == {100: 0.0, 200: 0.0, 300: 0.0, 400: 0.0, 500: 60.0, 600: 0.0}


def test_a_line_that_names_its_step(tmp_path):
    lines = [f"Step {step} | Loss: 2.5 | LR: 1e-4" for step in (10, 20, 30)]
    lines[2:2] = [f"WARNING: Step {step}: spiky gradient; skipping the update" for step in (22, 23)]
    trace = read_one(tmp_path, lines, "text")
    assert points(trace, "skipped") == {22: 1.0, 23: 1.0}
    assert list(points(trace, "loss")) == [10, 20, 30]


def test_overflows_at_the_end_belong_to_the_last_record(tmp_path):
    lines = [f"step {step} | loss: 2.5" for step in (1, 2, 3)]
    lines += [DEEPSPEED.format(scale=scale) for scale in (4, 2, 1)]
    trace = read_one(tmp_path, lines, "text")
    assert points(trace, "skipped") == {3: 3.0} and points(trace, "loss_scale") == {3: 1.0}


def test_overflows_behind_validations_alone(tmp_path):
    lines = [f"Validation loss {step}:  0.{step}" for step in (10, 20, 30)]
    trace = read_one(tmp_path, [*lines, APEX.format(scale=4), APEX.format(scale=2)], "text")
    assert points(trace, "skipped") == {30: 2.0} and points(trace, "loss_scale") == {30: 2.0}


def test_among_printed_dictionaries_and_bars(tmp_path):
    text = " 10%|#  | 1/9 [00:01<00:09,  1.1s/it]" + DEEPSPEED.format(scale=32) + "\n"
    rows = "".join(f"{{'loss': 2.5, 'epoch': {i / 10}}}\n" for i in range(5))
    (trace,) = read_all(tmp_path, rows + text + "{'loss': 2.25, 'epoch': 0.5}\n")
    assert trace.format == "dicts"
    assert points(trace, "skipped") == {6: 1.0} and points(trace, "loss_scale") == {6: 32.0}


def test_a_count_of_the_trainer_itself_is_preferred(tmp_path):
    lines = []
    for step in (1, 2, 3):
        lines += [DEEPSPEED.format(scale=8)] if step == 2 else []
        lines += [
            f" iteration {step}/ 9 | lm loss: 2.5E+00 | loss scale: {32 // step}.0 | grad norm: 1.0"
            f" | number of skipped iterations: {int(step == 2)} |"
        ]
    trace = read_one(tmp_path, lines, "megatron")
    assert points(trace, "skipped") == {1: 0.0, 2: 1.0, 3: 0.0}
    assert points(trace, "loss_scale") == {1: 32.0, 2: 16.0, 3: 10.0}


def test_skipped_lines_of_text_are_no_updates(tmp_path):
    lines = [f"step {step} | loss: 2.5" for step in (1, 2, 3)]
    lines[1:1] = ["Skipping the first 2 batches", "skipping existing file", "integer overflow"]
    assert "skipped" not in read_one(tmp_path, lines, "text").train
