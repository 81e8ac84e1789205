"""Kinds of lines of trainers that have no reader of their own, and of older versions."""

from __future__ import annotations

import math

import pytest

from pilot.readers.text_line import read_line
from tests.readers.text_logs import held_out, points, read_one, sniffed, with_junk

STEPS = (10, 20, 30, 40)


@pytest.mark.parametrize(
    "shape",
    [
        "| epoch   1 | {step:5d}/ 2983 batches | lr 20.00 | ms/batch 9.1 | loss {loss} | ppl  9.0",
        "INFO | E104 iter[ 14/ 15] | [Loss] {loss} | [step]  {step} | [best] 0 -1.0",
        "训练次数：{step}, Loss：{loss}",
        "шаг {step}, loss: {loss}",
        "Train loss {step} {loss} Grad Norm 0.250000 0.31s/it",
        "[05:59.7] Epoch: [0]  [  {step}/1504]  lr: 0.1  closs: {loss} (9.15)  grad_norm: 0.5",
        "[05-05 10:00:00][solver][INFO] - Train | Epoch 3 | {step}/332 | 0.8 it/sec | Loss {loss}",
        "10:00:00.1 train_loss: {loss}  step:{step}",
        "Epoch {step}, Loss: {loss}, ValLoss: 0.5",
    ],
)
def test_kinds_of_lines(tmp_path, shape):
    lines = [shape.format(step=step, loss=f"{9 - step / 10:.4f}") for step in STEPS]
    trace = read_one(tmp_path, with_junk(lines), "text")
    assert points(trace, "loss") == {10: 8.0, 20: 7.0, 30: 6.0, 40: 5.0}


@pytest.mark.parametrize(
    "shape",
    [
        "| epoch   1 | {step:5d}/ 2983 batches | lr 20.00 | ms/batch 9.1 | loss   nan | ppl  nan",
        "INFO | E104 iter[ 14/ 15] | [Loss] nan | [exp] ./e/01 | [step]  {step} | [time] 0.4m",
        "step:{step} - actor/entropy_loss:nan - actor/pg_loss:nan - actor/grad_norm:nan",
    ],
)
def test_losses_that_are_nan(tmp_path, shape):
    trace = read_one(tmp_path, [shape.format(step=step) for step in STEPS], "text")
    loss = points(trace, "loss")
    assert list(loss) == list(STEPS) and all(math.isnan(value) for value in loss.values())


@pytest.mark.parametrize(
    "line",
    [
        "step:59 - actor/pg_loss:nan - actor/grad_norm:nan - perf/mfu/actor:0.042",
        "Epoch [1][59/30895]\tlr: 8.0e-05, eta: 4 days, time: 1.9, loss: nan, grad_norm: 4.5",
        "[INFO] - Train | Epoch 3 | 59/332 | 0.89 it/sec | Loss nan | Grad 0.07",
    ],
)
def test_one_line_with_a_step_is_enough(tmp_path, line):
    trace = read_one(tmp_path, with_junk([line]), "text")
    loss = points(trace, "loss")
    assert list(loss) == [59] and math.isnan(loss[59])


def test_two_lines_with_an_epoch_and_a_validation_that_is_nan(tmp_path):
    lines = []
    for n in (0, 1):
        lines += [f"epoch: {n}, val_loss: nan", f"epoch: {n}, train loss: {7 - n}, lr: 0.0001"]
    trace = read_one(tmp_path, lines, "text")
    assert trace.axis == "epochs" and points(trace, "loss") == {0: 7.0, 1: 6.0}
    assert all(math.isnan(value) for value in held_out(trace).values())


@pytest.mark.parametrize(
    "text",
    [
        "In step 59 the loss was 2.0, and we stopped.",
        "At step 59 we saw a loss of 3.2: too high.",
        "Namespace(batch=20, step=5, loss='ce', clip=0.25, epochs=5, loss_pct=1.0)",
        "args: step=5, epochs=2, loss=1.0, lr=0.1",
        "Calculating loss...:  50%|###  | 10/20 [00:07<00:06,  1.4it/s]",
    ],
)
def test_one_line_that_is_no_record(text):
    assert sniffed([text]) == ""


def test_validations_alone_with_the_count_between_name_and_value(tmp_path):
    lines = []
    for n in (1, 2, 3):
        lines += [f"Epoch: {n}", f"Validation loss {500 * n}:  0.{5 - n}25000  "]
    trace = read_one(tmp_path, lines, "text")
    assert held_out(trace) == {500: 0.425, 1000: 0.325, 1500: 0.225} and "loss" not in trace.train


def test_a_validation_without_a_step_stands_at_the_one_before(tmp_path):
    lines = []
    for step in STEPS:
        lines += [f"step {step} loss: 3.5", f"val loss 3.{step}", "best val loss: 1.0"]
    trace = read_one(tmp_path, lines, "text")
    assert held_out(trace) == {10: 3.1, 20: 3.2, 30: 3.3, 40: 3.4}


def test_lines_of_an_epoch_among_lines_of_steps(tmp_path):
    lines = []
    for epoch in (0, 1):
        lines += [f"epoch {epoch} step {s + 40 * epoch} loss: 2.5" for s in STEPS]
        lines += [f"Epoch {epoch}: train loss: 9.5", f"Epoch {epoch}: val loss: {3 + epoch}"]
    trace = read_one(tmp_path, lines, "text")
    assert trace.axis == "steps" and set(points(trace, "loss").values()) == {2.5}
    assert held_out(trace) == {40: 3.0, 80: 4.0}


def test_the_mean_of_an_epoch_that_is_nan_after_good_steps(tmp_path):
    lines = [f"step {step} loss: 2.5" for step in range(1, 31)]
    lines += [
        " eval_ppl=tensor(nan, device='cuda:0') eval_epoch_loss=tensor(nan, device='cuda:0')",
        "Epoch 4: train_perplexity=nan, train_epoch_loss=nan, epoch time 242.34s",
    ]
    trace = read_one(tmp_path, lines, "text")
    loss = points(trace, "loss")
    assert math.isnan(loss[30]) and loss[29] == 2.5 and math.isnan(held_out(trace)[30])


def test_few_lines_in_each_of_several_epochs(tmp_path):
    lines = []
    for epoch in (1, 2, 3):
        lines += [f"Train | Epoch {epoch} | {s}/332 | Loss {3 - epoch / 4}" for s in (83, 166, 249)]
        lines += [f"Train Summary | Epoch {epoch} | Loss=9.5", f"Valid | Epoch {epoch} | Loss=3.5"]
    trace = read_one(tmp_path, lines, "text")
    assert list(points(trace, "loss").values()) == [2.75] * 3 + [2.5] * 3 + [2.25] * 3
    assert len(held_out(trace)) == 3


def test_a_share_in_percent_is_no_loss():
    said = read_line("Calculating loss...:  50%|#  | 10/20 [00:01]Iter 4: Val loss 5.5, took 1.4s")
    assert said is not None and said.step == 4
    assert [(key.is_validation, value) for key, value in said.found] == [(True, 5.5)]


def test_llmc_whose_scores_and_losses_are_nan(tmp_path):
    lines = [
        f"step {step:4d}/74 | loss     nan (+nanz)| norm    nan (+nanz)| lr 3.00e-04 | 36.58 ms"
        for step in STEPS
    ]
    trace = read_one(tmp_path, [*lines, "val loss nan"], "llm.c")
    assert all(math.isnan(points(trace, name)[40]) for name in ("loss", "grad_norm"))
    assert points(trace, "learning_rate")[10] == 3e-4 and math.isnan(held_out(trace)[40])


def test_nanogpt_with_a_unit(tmp_path):
    trace = read_one(tmp_path, ["step 0: train loss 6.5 BPC, val loss 6.25 BPC"], "nanogpt")
    assert points(trace, "loss") == {0: 6.5} and held_out(trace) == {0: 6.25}


@pytest.mark.parametrize(
    "shape",
    [
        "Epoch 1 | iter {i:2d} step {s:2d} | loss train: {loss}, val: n/a | iter time: 9 ms",
        "Ep 1 | iter {i} | step {s}: loss train (curr): {loss}, val (prev val iter): None | iter",
    ],
)
@pytest.mark.parametrize("per_step", [1, 2, 12])
def test_litgpt_counts_iterations_where_steps_are_few(tmp_path, shape, per_step):
    lines = [shape.format(i=i, s=1 + i // per_step, loss=4 - i / 100) for i in range(12)]
    trace = read_one(tmp_path, lines, "litgpt")
    assert len(points(trace, "loss")) == 12
    is_counted = any("iterations (micro-batches) are counted" in note for note in trace.notes)
    assert is_counted == (per_step > 1)


def test_fairseq_before_it_had_tags(tmp_path):
    lines = []
    for n in (1, 2):
        lines += [
            f"| epoch 00{n} | loss {4 - n}.5 | nll_loss 2.2 | ppl 4.61 | num_updates {250 * n}"
            f" | lr 0.0008 | gnorm 0.5 | clip 0% | loss_scale 1.000 | wall 8409",
            f"| epoch 00{n} | valid on 'valid' subset | valid_loss 4.{n}5 | valid_ppl 5.85"
            f" | num_updates {250 * n} | best 1.5",
        ]
    trace = read_one(tmp_path, lines, "fairseq")
    assert points(trace, "loss") == {250: 3.5, 500: 2.5} and held_out(trace) == {
        250: 4.15,
        500: 4.25,
    }
    assert points(trace, "grad_norm") == {250: 0.5, 500: 0.5}


def test_fairseq_means_of_an_epoch_stand_behind_its_updates(tmp_path):
    lines = [
        f"| train_inner | epoch 001:  {n} / 20 loss=9.5, ppl=9, num_updates={n}, lr=0.1, gnorm=2.5"
        for n in (10, 20)
    ]
    lines += ["| train | epoch 001 | loss 5.5 | ppl 9 | num_updates 20 | lr 0.1 | gnorm 7.5"]
    trace = read_one(tmp_path, lines, "fairseq")
    assert points(trace, "loss") == {10: 9.5, 20: 9.5}
    assert points(trace, "grad_norm") == {10: 2.5, 20: 2.5}
