"""The fallback for unknown logs, and what none of the text formats may claim."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilot.errors import LogError
from pilot.readers.text_formats import READERS
from pilot.readers.text_line import Reading, read_line
from pilot.readers.text_names import number
from tests.readers.text_logs import (
    JUNK,
    held_out,
    points,
    read_all,
    read_one,
    sniffed,
    with_junk,
    write,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234.5", 1234.5),
        ("6.0E-05", 6e-5),
        ("1.4M", 1.4e6),
        ("93.2K", 93200.0),
        ("INF", math.inf),
        ("-inf", -math.inf),
        ("n/a", None),
        ("", None),
        ("2.3,", 2.3),
    ],
)
def test_number(text, value):
    assert number(text) == (pytest.approx(value) if value is not None else None)


@pytest.mark.parametrize("text", ["nan", "-nan", "NaN", "nan(ind)", "-nan(ind)"])
def test_number_that_is_none(text):
    assert math.isnan(number(text))


@pytest.mark.parametrize(
    "shape",
    [
        "Step: {step}, Train Loss: {loss}, LR: 0.001, Grad Norm: 1.5",
        "2024-12-25 21:22:47 INFO main:57 - epoch 1 step {step} loss {loss}",
        "global_step {step} loss={loss} lr=1e-4",
        "loss at {step} {loss}",
        "[train] iter: {step}/5000 | avg loss: {loss} | 3.2 it/s",
        "completed step: {step}, seconds: 5.2, TFLOP/s/device: 60.1, loss: {loss}",
        "[{step}] step={step} training loss = {loss} (ema 3.3)",
        "Iteration {step}: loss = {loss}, accuracy = 0.5",
        "[Rank 0] Step {step} | Loss: {loss} | LR: 6.00e-06 | Tokens/s: 8192",
        "step {step} of 900 - time 12.1 s - loss tensor({loss}, device='cuda:0')",
        "loss: {loss}, learning_rate: 3e-07, global_step: {step}, interval_runtime: 1.2",
        "Batch {step} - Loss (train): {loss} - time: 0.31s",
        "10/10 01:02:03 - mmengine - INFO - Iter(train) [ {step}/999]  lr: 2e-05  loss: {loss}",
        "Iter {step}: Train loss {loss}, Learning Rate 1.000e-05, It/sec 0.5",
        "global step {step}, epoch: 0, batch: 7, loss: {loss}, avg_reader_cost: 0.1 sec",
        "train_opt_callback: iter=   {step} sample=1/9 sched=0.1 loss={loss} dt=00:01",
        "step:{step} - actor/pg_loss:{loss} - actor/grad_norm:0.5 - timing_s/gen:3.1",
    ],
)
def test_unknown_lines(tmp_path, shape):
    lines = [shape.format(step=step, loss=f"{9 - step / 10:.4f}") for step in (10, 20, 30, 40)]
    trace = read_one(tmp_path, with_junk(lines), "text")
    assert points(trace, "loss") == {10: 8.0, 20: 7.0, 30: 6.0, 40: 5.0}
    assert trace.axis == "steps"


def test_other_quantities_of_unknown_lines(tmp_path):
    lines = [
        f"step {step} | train loss 3.5 | val loss 3.75 | test loss 4.0 | lr 1e-4 | grad norm 0.5"
        for step in (1, 2, 3)
    ]
    trace = read_one(tmp_path, lines, "text")
    assert points(trace, "loss") == dict.fromkeys((1, 2, 3), 3.5)
    assert points(trace, "learning_rate")[1] == 1e-4 and points(trace, "grad_norm")[1] == 0.5
    assert held_out(trace) == dict.fromkeys((1, 2, 3), 3.75)
    assert held_out(trace, "test") == dict.fromkeys((1, 2, 3), 4.0)


def test_validation_lines_of_their_own(tmp_path):
    lines = []
    for step in (10, 20, 30):
        lines += [f"step {step} loss 3.{step}", f"Validation: step {step} loss 4.{step}"]
    trace = read_one(tmp_path, lines, "text")
    assert points(trace, "loss") == {10: 3.1, 20: 3.2, 30: 3.3}
    assert held_out(trace) == {10: 4.1, 20: 4.2, 30: 4.3}


def test_epochs_only(tmp_path):
    lines = [f"Epoch {n}/9 | Train Loss: {5 - n} | Val Loss: {6 - n} | Time: 3s" for n in (1, 2, 3)]
    trace = read_one(tmp_path, lines, "text")
    assert points(trace, "loss") == {1: 4.0, 2: 3.0, 3: 2.0}
    assert held_out(trace) == {1: 5.0, 2: 4.0, 3: 3.0}


def test_epochs_as_fractions(tmp_path):
    lines = [f"epoch {n / 10:.1f} - loss {5 - n / 10:.2f}" for n in range(8, 13)]
    trace = read_one(tmp_path, lines, "text")
    assert trace.axis == "records"
    assert points(trace, "loss") == {1: 4.2, 2: 4.1, 3: 4.0, 4: 3.9, 5: 3.8}


def test_many_lines_of_one_epoch_are_records(tmp_path):
    lines = [f"Epoch {1 + n // 10} loss {5 - n / 10:.2f}" for n in range(30)]
    trace = read_one(tmp_path, lines, "text")
    assert trace.axis == "records" and len(trace.train["loss"].steps) == 30


@pytest.mark.parametrize(
    "shape",
    [
        "Epoch [{epoch}/3], Step [{step}/100], Loss: {loss}",
        "Epoch: [{epoch}][{step}/100] Time 0.1 (0.2) Loss {loss} (9.9)",
        "Train Epoch: {epoch} [{step}/100 (1%)]\tLoss: {loss}",
        "Epoch:[{epoch}/9]({step}/100) loss:{loss} lr:0.0005 epoch_Time:1.0min:",
        "10/10 - mmengine - INFO - Epoch(train) [{epoch}][ {step}/100]  lr: 2e-05  loss: {loss}",
        "Train: {epoch} [  {step}/1251 (  4%)]  Loss: {loss} (6.94)  Time: 0.1s  LR: 1.0e-05",
    ],
)
def test_steps_that_begin_again_in_each_epoch(tmp_path, shape):
    lines = [
        shape.format(epoch=epoch, step=step, loss=5 - epoch)
        for epoch in (1, 2)
        for step in range(10, 101, 10)
    ]
    trace = read_one(tmp_path, lines, "text")
    loss = list(points(trace, "loss").values())
    assert loss == [4.0] * 10 + [3.0] * 10


def test_micro_batches_and_updates_get_one_axis(tmp_path):
    lines = ["gradient_accumulation          4"]
    lines += [f"loss at {step} {4 - step / 1000}" for step in range(4, 2005, 400)]
    lines += ["2024-12-25 | INFO | __main__:main:576 - Eval loss at step 500: 3.25,tokens_seen: 9"]
    trace = read_one(tmp_path, lines, "text")
    assert points(trace, "loss")[404] == 3.596 and held_out(trace) == {2000: 3.25}


@pytest.mark.parametrize(
    "text",
    [
        list(JUNK),
        ["In step 1 we describe the loss 2.0 of the model.", "Step 2 has a loss 3.0 too."],
        ["loss: 3.2", "loss: 3.1", "loss: 3.0"],
        ["step 1", "step 2", "step 3"],
        ["{'loss': 3.2, 'step': 1}", "{'loss': 3.1, 'step': 2}", "{'loss': 3.0, 'step': 3}"],
        ["step 9 loss 1.0", "step 5 loss 1.0", "step 7 loss 1.0", "step 2 loss 1.0"],
        ["lossless step %d: 1", "glossary step 2: 2", "floss step 3: 3"],
    ],
)
def test_what_no_text_format_claims(text):
    assert sniffed(text) == ""


def test_prose_is_refused(tmp_path):
    with pytest.raises(LogError):
        read_all(tmp_path, "The loss of the first step was 3.2, then it fell.\n" * 50)


def test_a_known_format_beats_the_fallback():
    lines = [f"iter {step}: loss 3.5, time 1ms, mfu 1.00%" for step in (1, 2, 3)]
    scores = {reader.name: reader.sniff("\n".join(lines), Path("x")) for reader in READERS}
    assert scores["nanogpt"] > 0.9 > 0.5 > scores["text"] > 0.2
    assert [name for name, score in scores.items() if score >= 0.5] == ["nanogpt"]


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.lists(st.text(alphabet="step loss:=0123456789.,|[]/naief-\t", max_size=60), max_size=20))
def test_no_text_breaks_a_reader(lines):
    from pilot.readers.points import Points
    from pilot.readers.text_generic import feed

    points_of = Points("x", "text")
    feed(points_of, lines)
    points_of.traces()
    for reader in READERS:
        assert 0.0 <= reader.sniff("\n".join(lines), Path("x")) <= 1.0


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**6),
            st.floats(allow_nan=False, width=32),
            st.sampled_from(["step {} loss {}", "loss {1} at step {0}", "{1} step={0}, loss={1}"]),
        ),
        max_size=20,
    )
)
def test_remembered_shapes_read_as_the_first_time(rows):
    reading = Reading()
    for step, loss, shape in rows:
        line = shape.format(step, loss)
        assert reading.read(line) == read_line(line)
        assert reading.read(line) == read_line(line)


@pytest.mark.parametrize(
    ("more", "objective"),
    [("", "unknown"), ("actor/kl: 0.1", "rl"), ("rewards/chosen: 0.5", "preference")],
)
def test_objective_by_the_names(tmp_path, more, objective):
    lines = [f"step: {step} loss: 0.5 {more}" for step in (1, 2, 3)]
    assert read_one(tmp_path, lines, "text").objective == objective


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_no_reader_finds_a_point_in_junk(tmp_path, reader):
    assert list(reader.read(write(tmp_path, with_junk([])))) == []
