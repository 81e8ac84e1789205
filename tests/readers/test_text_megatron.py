from __future__ import annotations

import math

import pytest

from tests.readers.text_logs import held_out, points, read_all, read_one, sniffed, with_junk


def record(
    step: int,
    *,
    loss: str | None = "2.5E+00",
    norm: str | None = "0.250",
    skipped: int = 0,
    before: str = " ",
    extra: str = "",
) -> str:
    fields = [f"{before}iteration {step:8d}/     100 | consumed samples: {step * 8:12d} "]
    fields += ["| elapsed time per iteration (ms): 75254.0 | learning rate: 6.000E-05 "]
    fields += ["| global batch size:     8 "]
    fields += [f"| lm loss: {loss} " if loss is not None else ""]
    fields += [extra, "| loss scale: 4096.0 "]
    fields += [f"| grad norm: {norm} " if norm is not None else ""]
    fields += [f"| number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |"]
    return "".join(fields)


def test_fields_of_an_iteration(tmp_path):
    lines = [record(step, loss=f"{9 - step:.6E}", norm=f"{step}.5") for step in (1, 2, 3, 4)]
    trace = read_one(tmp_path, with_junk(lines), "megatron")
    assert points(trace, "loss") == {1: 8.0, 2: 7.0, 3: 6.0, 4: 5.0}
    assert points(trace, "grad_norm") == {1: 1.5, 2: 2.5, 3: 3.5, 4: 4.5}
    assert points(trace, "learning_rate") == dict.fromkeys((1, 2, 3, 4), 6e-5)
    assert points(trace, "loss_scale") == dict.fromkeys((1, 2, 3, 4), 4096.0)
    assert points(trace, "skipped") == dict.fromkeys((1, 2, 3, 4), 0.0)
    assert trace.axis == "steps" and trace.objective == "lm"


@pytest.mark.parametrize(
    "before",
    [
        "",
        "node-07-14:  ",
        "[default7]: ",
        "7: [2024-05-01 10:11:12.131415] ",
        "[2024-05-01 10:11:12] ",
        "loading index to 0> RANK 2 elapsed time: 0.00 (sec) ",
    ],
)
def test_prefix_before_the_record(tmp_path, before):
    lines = [record(step, before=before) for step in (10, 20, 30)]
    assert list(points(read_one(tmp_path, lines, "megatron"), "loss")) == [10, 20, 30]


def test_names_that_are_not_the_training_loss(tmp_path):
    extra = "| load_balancing_loss: 1.1E-02 | mtp_1 loss: 9.0E+00 | z_loss: 5.0E-04 "
    lines = [record(step, loss="3.0E+00", extra=extra) for step in (1, 2, 3)]
    assert points(read_one(tmp_path, lines, "megatron"), "loss") == {1: 3.0, 2: 3.0, 3: 3.0}


def test_auxiliary_loss_in_front_of_the_loss(tmp_path):
    lines = [
        f" iteration {step}/9 | seq_load_balancing_loss: 1.0E-03 | loss: 4.0E+00 | grad norm: 1.0 |"
        for step in (1, 2, 3)
    ]
    assert points(read_one(tmp_path, lines, "megatron"), "loss") == {1: 4.0, 2: 4.0, 3: 4.0}


def test_missing_loss_beside_a_nan_grad_norm(tmp_path):
    lines = ["d norm: nan | number of skipped iterations:   0 |"]
    lines += [record(step, loss=None, norm="nan") for step in (5426, 5427, 5428)]
    trace = read_one(tmp_path, lines, "megatron")
    assert "loss" not in trace.train
    norms = points(trace, "grad_norm")
    assert list(norms) == [5426, 5427, 5428] and all(map(math.isnan, norms.values()))
    assert any("no loss" in note for note in trace.notes)


def test_missing_loss_without_a_grad_norm_is_nan(tmp_path):
    lines = [record(step, norm=None) for step in (1, 2, 3)]
    lines += [record(step, loss=None, norm=None) for step in (4, 5)]
    loss = points(read_one(tmp_path, lines, "megatron"), "loss")
    assert loss[3] == 2.5 and math.isnan(loss[4]) and math.isnan(loss[5])


def test_missing_loss_beside_an_auxiliary_one(tmp_path):
    extra = "| mtp_1 loss: 9.0E+00 "
    lines = [record(step, norm=None, extra=extra) for step in (1, 2, 3)]
    lines += [record(4, loss=None, norm=None, extra=extra)]
    loss = points(read_one(tmp_path, lines, "megatron"), "loss")
    assert loss[3] == 2.5 and math.isnan(loss[4])


def test_missing_loss_of_a_skipped_update_is_absent(tmp_path):
    lines = [record(1, norm=None), record(2, norm=None), record(3, norm=None)]
    lines.insert(1, record(2, loss=None, norm=None, skipped=1))
    del lines[2]
    trace = read_one(tmp_path, lines, "megatron")
    assert points(trace, "loss") == {1: 2.5, 3: 2.5}
    assert points(trace, "skipped") == {1: 0.0, 2: 1.0, 3: 0.0}


@pytest.mark.parametrize("word", ["nan", "NaN", "-nan", "NAN"])
def test_literal_nan_is_a_value(tmp_path, word):
    lines = [record(1), record(2), record(3, loss=word, norm="inf")]
    trace = read_one(tmp_path, lines, "megatron")
    assert math.isnan(points(trace, "loss")[3]) and points(trace, "grad_norm")[3] == math.inf


def test_several_ranks_print_the_same_iteration(tmp_path):
    lines = [
        record(step, before=f"[default{rank}]: ") for step in (1, 2, 3, 4) for rank in range(4)
    ]
    trace = read_one(tmp_path, lines, "megatron")
    assert points(trace, "loss") == dict.fromkeys((1, 2, 3, 4), 2.5)


def test_two_records_on_one_line(tmp_path):
    lines = [record(1) + record(2, loss="2.0E+00"), record(3), record(4)]
    loss = points(read_one(tmp_path, lines, "megatron"), "loss")
    assert loss == {1: 2.5, 2: 2.0, 3: 2.5, 4: 2.5}


def test_truncated_last_line(tmp_path):
    whole = "\n".join(record(step) for step in (1, 2, 3, 4))
    cut = whole[: whole.rindex("lm loss") + len("lm lo")]
    trace = read_one(tmp_path, cut, "megatron")
    assert points(trace, "loss") == {1: 2.5, 2: 2.5, 3: 2.5}


def test_validation_lines(tmp_path):
    lines = [record(step) for step in (1, 2, 3)]
    rule = "-" * 60
    lines += [rule, " validation loss at iteration 2 | lm loss value: 2.4E+00 | lm loss PPL: 11 |"]
    lines += [
        rule,
        "(0): validation loss at iteration 3 on validation set | lm loss value: 2.25E+00 | "
        "lm loss PPL: 9.4E+00 | ",
        " validation loss at iteration 3 on test set | lm loss value: 2.75E+00 | lm loss PPL: 1 |",
        " validation-1 loss at iteration 3 | lm loss value: 1.5E+00 | lm loss PPL: 4.4E+00 | ",
        " validation loss at the end of training for val data | lm loss value: 9.0E+00 | ",
    ]
    trace = read_one(tmp_path, lines, "megatron")
    assert held_out(trace) == {2: 2.4, 3: 2.25}
    assert held_out(trace, "test") == {3: 2.75}
    assert held_out(trace, "1") == {3: 1.5}
    assert set(trace.validations) == {"", "test", "1"}


def test_gpt_neox(tmp_path):
    lines = [
        f" samples/sec: 147.230 | iteration {step:8d}/    1024 | elapsed time per iteration (ms): "
        f"3477.6 | learning rate: 1.000E-05 | approx flops per GPU: 9.5TFLOPS | "
        f"lm_loss: {12 - step:.6E} | loss scale: 4096.0 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 |"
        for step in (1, 2, 3)
    ]
    lines.insert(0, "[INFO] steps: 1 loss: 11.0645 iter time (s): 3.478 samples/sec: 147.196")
    lines.append(
        " validation results at iteration 3 | lm_loss value: 8.5E+00 | lm_loss_ppl value: 4.9E+03 |"
    )
    trace = read_one(tmp_path, lines, "megatron")
    assert points(trace, "loss") == {1: 11.0, 2: 10.0, 3: 9.0}
    assert held_out(trace) == {3: 8.5}


def test_nemo(tmp_path):
    lines = [
        f"(pid=4112) Training epoch 0, iteration {step % 3}/3 | lr: 1.5e-06 | global_batch_size: 8 "
        f"| global_step: {step} | reduced_train_loss: {9 - step}.5 | train_step_timing in s: 6.1 "
        f"| consumed_samples: {step * 8} | val_loss: {7 if step < 4 else 6}"
        for step in range(1, 7)
    ]
    trace = read_one(tmp_path, lines, "megatron")
    assert points(trace, "loss") == {1: 8.5, 2: 7.5, 3: 6.5, 4: 5.5, 5: 4.5, 6: 3.5}
    # The last validation stands on every line until the next one.
    assert held_out(trace) == {1: 7.0, 4: 6.0}


def test_nanotron_units(tmp_path):
    lines = [
        f"05/01/2024 10:11:12 [INFO|DP=0|PP=0|TP=0]: iteration: {step} / 100 | "
        "consumed_tokens: 93.2K | elapsed_time_per_iteration_ms: 1.2K | tokens_per_sec: 11.3K | "
        "global_batch_size: 1.02K | lm_loss: 9.25 | lr: 3.3e-05 | grad_norm: 1.4M"
        for step in (1, 2, 3)
    ]
    trace = read_one(tmp_path, lines, "megatron")
    assert points(trace, "loss")[2] == 9.25
    assert points(trace, "grad_norm")[2] == 1.4e6
    assert points(trace, "num_tokens")[2] == pytest.approx(93_200)


def test_resume_that_steps_back(tmp_path):
    first = [record(step, loss="3.0E+00") for step in range(1, 31)]
    second = [record(step, loss="2.0E+00") for step in range(21, 41)]
    (trace,) = read_all(tmp_path, [*first, "resumed from checkpoint", *second])
    loss = points(trace, "loss")
    assert list(loss) == list(range(1, 41)) and loss[20] == 3.0 and loss[21] == 2.0


def test_two_runs_in_one_file(tmp_path):
    run = [record(step) for step in range(1, 31)]
    traces = read_all(tmp_path, [*run, "srun: job started", *run])
    assert [len(trace.train["loss"].steps) for trace in traces] == [30, 30]


def test_a_head_of_arguments_alone_is_only_a_hint():
    head = [
        "------------------------ arguments ------------------------",
        "  iteration ....................................... None",
        "  reset_iteration ................................. False",
        " setting training iterations to 5",
    ]
    assert sniffed(head) == "megatron"
    assert sniffed(head[1:]) == ""
