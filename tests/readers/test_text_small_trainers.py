"""llm.c, nanoGPT, modded-nanogpt, nanochat."""

from __future__ import annotations

import math

import pytest

from tests.readers.text_logs import held_out, points, read_all, read_one, sniffed, with_junk


def test_llmc_main_log(tmp_path):
    lines = ["s:0 tel:11.0092", "s:0 eval:0.2463"]
    lines += [f"s:{step} trl:{11 - step}.5 lr:0.00000{step} norm:{step}.25" for step in range(1, 6)]
    lines += ["s:5 tel:6.5", "s:6 trl:-nan lr:0.0006 norm:nan", "s:7 trl:4.0", "s:8 trl"]
    trace = read_one(tmp_path, with_junk(lines), "llm.c")
    loss = points(trace, "loss")
    assert [loss[step] for step in (1, 2, 5, 7)] == [10.5, 9.5, 6.5, 4.0]
    assert math.isnan(loss[6]) and math.isnan(points(trace, "grad_norm")[6])
    assert points(trace, "learning_rate")[3] == 3e-6
    assert points(trace, "grad_norm")[5] == 5.25
    assert held_out(trace) == {0: 11.0092, 5: 6.5}


def test_llmc_stdout_of_the_cuda_program(tmp_path):
    lines = ["val loss 11.0"]
    lines += [
        f"step {step:4d}/100 | loss {11 - step}.250000 (+nanz)| norm 15.5000 (+0.32z)| "
        "lr 8.57e-07 | 3056.36 ms | 50.1% bf16 MFU | 171545 tok/s"
        for step in (1, 2, 3)
    ]
    lines += ["val loss 8.5", "generating:", "---"]
    trace = read_one(tmp_path, with_junk(lines), "llm.c")
    assert points(trace, "loss") == {1: 10.25, 2: 9.25, 3: 8.25}
    assert points(trace, "grad_norm")[1] == 15.5
    assert points(trace, "learning_rate")[1] == 8.57e-7
    assert held_out(trace) == {0: 11.0, 3: 8.5}


def test_llmc_stdout_of_the_other_programs(tmp_path):
    python = [
        f"step {step:4d}/20 | train loss 5.{step}00000 | norm 30.0 | lr 1.00e-04 | (9 ms | 9 tok/s)"
        for step in (1, 2, 3)
    ]
    assert points(read_one(tmp_path, python, "llm.c"), "loss") == {1: 5.1, 2: 5.2, 3: 5.3}
    older = [
        f"step {step:4d}/74: train loss 4.{step} (acc 4.36) (26.5 ms, 154 tok/s)"
        for step in (1, 2, 3)
    ]
    assert points(read_one(tmp_path, older, "llm.c"), "loss") == {1: 4.1, 2: 4.2, 3: 4.3}


def nanogpt(steps: range, loss: float = 4.0) -> list[str]:
    return [
        f"iter {step}: loss {loss - step / 1000:.4f}, time 3011.87ms, mfu -100.00%"
        for step in steps
    ]


def test_nanogpt_batches_and_estimates(tmp_path):
    lines = ["step 0: train loss 10.9889, val loss 10.9903", *nanogpt(range(0, 100, 10))]
    lines += ["step 100: train loss 3.5, val loss 3.75", "iter 100: loss nan, time 1.0ms, mfu 2%"]
    trace = read_one(tmp_path, with_junk(lines), "nanogpt")
    loss = points(trace, "loss")
    assert loss[0] == 4.0 and loss[90] == 3.91 and math.isnan(loss[100])
    assert held_out(trace) == {0: 10.9903, 100: 3.75}


def test_nanogpt_with_estimates_only(tmp_path):
    lines = [f"step {step}: train loss {4 - step / 500}, val loss 3.9" for step in (0, 500, 1000)]
    trace = read_one(tmp_path, lines, "nanogpt")
    assert points(trace, "loss") == {0: 4.0, 500: 3.0, 1000: 2.0}
    assert held_out(trace) == dict.fromkeys((0, 500, 1000), 3.9)
    assert any("estimate" in note for note in trace.notes)


def test_nanogpt_forks(tmp_path):
    lines = [f"iter {step}: loss 3.5, lr 6.0e-04, grad_norm 0.75, time 9.1ms" for step in (1, 2, 3)]
    trace = read_one(tmp_path, lines, "nanogpt")
    assert points(trace, "learning_rate")[2] == 6e-4 and points(trace, "grad_norm")[2] == 0.75


def test_llama2c(tmp_path):
    lines = [f"{step} | loss 10.4 | lr 5.0e-07 | 3000.1ms | mfu -100.00%" for step in (0, 1, 2)]
    lines.insert(0, "step 0: train loss 10.4, val loss 10.3")
    trace = read_one(tmp_path, lines, "nanogpt")
    assert points(trace, "loss") == dict.fromkeys((0, 1, 2), 10.4)
    assert held_out(trace) == {0: 10.3}


def test_build_nanogpt_stdout_and_file(tmp_path):
    stdout = ["validation loss: 10.9"]
    stdout += [
        f"step {step:5d} | loss: 9.{step}00000 | lr 8.3e-07 | norm: 15.25 | dt: 1ms | tok/sec: 2"
        for step in (1, 2, 3)
    ]
    stdout += ["HellaSwag accuracy: 24/100=0.24", "validation loss: 8.5"]
    trace = read_one(tmp_path, stdout, "nanogpt")
    assert points(trace, "loss") == {1: 9.1, 2: 9.2, 3: 9.3}
    assert points(trace, "grad_norm")[3] == 15.25
    assert held_out(trace) == {0: 10.9, 3: 8.5}
    file = ["0 val 10.9519", "0 hella 0.2463", "0 train 10.5", "1 train 9.5", "2 train 9.0"]
    trace = read_one(tmp_path, file, "nanogpt")
    assert points(trace, "loss") == {0: 10.5, 1: 9.5, 2: 9.0} and held_out(trace) == {0: 10.9519}


def test_modded_nanogpt(tmp_path):
    lines = ["step:0/1390 val_loss:10.8258 train_time:0ms step_avg:nanms"]
    lines += [
        f"step:{step}/1390 train_loss:{10 - step}.5 train_time:99ms step_avg:nanms"
        for step in (1, 2, 3)
    ]
    lines += ["step:4/1390 train_time:120ms step_avg:33.1ms"]
    lines += ["step:4/1390 val_loss:6.25 val_bpb:3.7 train_time:1ms", "peak memory: 33 MiB"]
    trace = read_one(tmp_path, with_junk(lines), "modded-nanogpt")
    assert points(trace, "loss") == {1: 9.5, 2: 8.5, 3: 7.5}
    assert held_out(trace) == {0: 10.8258, 4: 6.25}
    assert set(trace.validations) == {""}


def test_modded_forks(tmp_path):
    lines = []
    for step in (10, 20, 30):
        lines.append(
            f"step:{step}/90, tokens seen:0.59M, avg_train_loss:5.6 time:68/nans step_avg:x"
        )
        lines.append(
            f"step:{step}/90, tokens seen: 0.66M, val_loss:nan train_time:0.00s step_avg:x"
        )
    trace = read_one(tmp_path, lines, "modded-nanogpt")
    assert points(trace, "loss") == dict.fromkeys((10, 20, 30), 5.6)
    assert all(map(math.isnan, held_out(trace).values()))


def test_modded_runs_with_validations_only(tmp_path):
    run = [
        f"step {step:4d}/1840 | time: 4,542ms | step avg: 33.61ms"
        + (f" | val loss: {10 - step / 100}" if step % 250 == 0 else "")
        for step in range(0, 1001, 50)
    ]
    traces = read_all(tmp_path, run * 3)
    assert [held_out(trace) for trace in traces] == [
        {0: 10.0, 250: 7.5, 500: 5.0, 750: 2.5, 1000: 0.0}
    ] * 3


def test_program_source_at_the_head_is_no_log(tmp_path):
    source = [
        "import torch",
        'print0(f"step:{step}/{args.num_iterations} val_loss:{val_loss:.4f} train_time:{t:.0f}ms")',
        "if step == 0: loss = 3.2  # step 1 loss 2.0",
    ]
    assert sniffed(source) == ""
    lines = [f"step:{step}/99 val_loss:{5 - step / 10} train_time:1ms" for step in (0, 10, 20)]
    trace = read_one(tmp_path, source + lines, "modded-nanogpt")
    assert held_out(trace) == {0: 5.0, 10: 4.0, 20: 3.0}


def test_nanochat_base_training(tmp_path):
    lines = ["Step 00000 | Validation bpb: 3.3013"]
    lines += [
        f"step {step:05d}/21400 (0.0{step}%) | loss: {11 - step}.5 | grad norm: 0.5 | lrm: 1.00 | "
        "dt: 23156.74ms | tok/sec: 22,640 | mfu: 1.00 | total time: 0.00m"
        for step in (0, 1, 2)
    ]
    lines += ["Step 00002 | Validation bpb: 2.5", "Minimum validation bpb: 2.5"]
    trace = read_one(tmp_path, with_junk(lines), "nanochat")
    assert points(trace, "loss") == {0: 11.5, 1: 10.5, 2: 9.5}
    assert points(trace, "grad_norm")[1] == 0.5
    assert held_out(trace, "bpb") == {0: 3.3013, 2: 2.5}
    assert "learning_rate" not in trace.train
    assert any("mean" in note for note in trace.notes)


def test_nanochat_fine_tuning_and_autoresearch(tmp_path):
    tuning = ["Step 00000 | Validation loss: 1.5"]
    tuning += [
        f"Step 0000{step}/00701 | Training loss: 1.{step}| lrm: 1.0| num_tokens: 1,234"
        for step in (1, 2, 3)
    ]
    trace = read_one(tmp_path, tuning, "nanochat")
    assert points(trace, "loss") == {1: 1.1, 2: 1.2, 3: 1.3} and held_out(trace) == {0: 1.5}
    research = [
        f"step 0000{step} (0.{step}%) | loss: 9.01 | lrm: 0.00 | dt: 952ms | tok/sec: 17,209 | "
        "epoch: 1 | remaining: 300s    "
        for step in (0, 1, 2)
    ]
    (tmp_path / "utf16.log").write_bytes(
        "\r\n".join([*research, "---", "val_bpb: 1.5"]).encode("utf-16")
    )
    from pilot.readers import registry

    (trace,) = registry.read(tmp_path / "utf16.log")
    assert points(trace, "loss") == {0: 9.01, 1: 9.01, 2: 9.01} and not trace.validations


@pytest.mark.parametrize(
    ("cut", "format"),
    [
        ("s:4 trl:7.0 lr:0.0", "llm.c"),
        ("iter 40: loss 3.", "nanogpt"),
        ("step:4/9 train_lo", "modded-nanogpt"),
        ("step 00004/21400 (0.04%) | lo", "nanochat"),
    ],
)
def test_truncated_last_line(tmp_path, cut, format):
    whole = {
        "llm.c": [f"s:{step} trl:7.0 lr:0.1 norm:1.0" for step in (1, 2, 3)],
        "nanogpt": nanogpt(range(10, 40, 10)),
        "modded-nanogpt": [f"step:{step}/9 train_loss:7.0 x:1" for step in (1, 2, 3)],
        "nanochat": [f"step 0000{step}/21400 (0.01%) | loss: 7.0 | x" for step in (1, 2, 3)],
    }[format]
    trace = read_one(tmp_path, "\n".join([*whole, cut]), format)
    assert len(trace.train["loss"].steps) in (3, 4)
    assert points(trace, "loss")[1 if format != "nanogpt" else 10] == pytest.approx(
        7.0 if format != "nanogpt" else 3.99
    )
