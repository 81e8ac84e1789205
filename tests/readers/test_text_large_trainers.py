"""torchtitan, OLMo, Composer, LitGPT, fairseq, torchtune, DeepSpeed."""

from __future__ import annotations

import math

from tests.readers.text_logs import held_out, points, read_all, read_one, sniffed, with_junk


def titan(step: int, loss: float, before: str = "[rank0]:[titan] ") -> str:
    return (
        f"{before}2025-06-04 08:51:48,074 - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: "
        f"{loss:7.4f}  \x1b[38;2;180;60;0mgrad_norm:  1.2500  \x1b[38;2;54;234;195mmemory: "
        "27.34GiB(28.78%)  \x1b[34mtps: 7,034  \x1b[36mtflops: 407.35  \x1b[35mmfu: 41.19%\x1b[39m"
    )


def test_torchtitan(tmp_path):
    lines = [titan(step, 12.5 - step) for step in (1, 2, 3)]
    lines += [
        "[titan] - root - INFO - \x1b[33mvalidate step:  3  \x1b[32mloss:  9.7500  memory: 2GiB"
    ]
    lines += [titan(4, math.nan)]
    trace = read_one(tmp_path, with_junk(lines), "torchtitan")
    loss = points(trace, "loss")
    assert [loss[step] for step in (1, 2, 3)] == [11.5, 10.5, 9.5] and math.isnan(loss[4])
    assert points(trace, "grad_norm") == dict.fromkeys((1, 2, 3, 4), 1.25)
    assert held_out(trace) == {3: 9.75}


def test_torchtitan_old_and_on_all_ranks(tmp_path):
    old = [
        f"2024-10-03 - root - INFO - step: {step}  loss: 10.8235  memory: 26.73GiB  wps: 1"
        for step in (1, 2, 3)
    ]
    assert points(read_one(tmp_path, old, "torchtitan"), "loss")[3] == 10.8235
    ranks = [
        titan(step, 9.0, f"[rank{rank}]:[titan] ") for step in range(1, 9) for rank in (0, 1, 2)
    ]
    assert points(read_one(tmp_path, ranks, "torchtitan"), "loss") == dict.fromkeys(
        range(1, 9), 9.0
    )


def test_flame_prints_rate_and_norm_on_the_next_line(tmp_path):
    lines = []
    for step in (1, 2, 3):
        lines.append(f"[rank0]: INFO - step: {step:8d}  loss: 10.9000  memory: 1GiB(1%)  tps: 1")
        lines.append("[rank0]: INFO - lr: 1.0e-05  gnorm:  2.50  [0:00:09<1 day]")
    trace = read_one(tmp_path, lines, "torchtitan")
    assert points(trace, "grad_norm") == dict.fromkeys((1, 2, 3), 2.5)
    assert points(trace, "learning_rate")[2] == 1e-5


def test_olmo(tmp_path):
    lines = ["[2024-04-17 09:42:26] INFO     [olmo.train:816, rank=1] [step=1/739328]"]
    for step in (1, 2, 3):
        lines += [
            f"[2024-04-17] INFO     [olmo.train:816, rank=0] [step={step}/739328, eta=1 hour]",
            f"    train/CrossEntropyLoss={12 - step}.25",
            "    train/Perplexity=76,631",
            "    throughput/total_tokens=4,194,304",
            "    optim/total_grad_norm=0.5000",
            "    optim/learning_rate_group0=6e-05",
            "    System/Peak GPU Memory (MB)=42,133",
        ]
    lines += ["[2024] INFO [olmo.train:1] [eval_step=10/100]", "c4_en-validation"]
    lines += [
        "    eval/c4_en-validation/CrossEntropyLoss=9.5",
        "    eval/c4_en-validation/Perplexity=99",
    ]
    lines += ["    eval/downstream/piqa_len_norm=0.5"]
    trace = read_one(tmp_path, with_junk(lines), "olmo")
    assert points(trace, "loss") == {1: 11.25, 2: 10.25, 3: 9.25}
    assert points(trace, "grad_norm") == dict.fromkeys((1, 2, 3), 0.5)
    assert points(trace, "learning_rate")[1] == 6e-5
    assert points(trace, "num_tokens")[1] == 4194304.0
    assert held_out(trace, "c4_en-validation") == {3: 9.5} and len(trace.validations) == 1


def test_olmo_core(tmp_path):
    lines = []
    for step in (1, 10, 20):
        lines += [
            f"2026-08-08 12:01:00 INFO [console_logger:68] [step={step}/2000,epoch=1,eta=4h58m]",
            f"    train/CE loss={9 - step / 10}",
            "    train/PPL=511.9",
            "    train/Z loss=0.0001",
            "    optim/total grad norm=0.75",
            "    optim/step skipped=0",
            "    optim/LR (group 0)=0.0003",
        ]
    lines += [
        "2026 INFO [evaluator:1] [eval=lm,step=5/10]",
        "Finished lm evals in 12.3 seconds. Metrics:",
    ]
    lines += ["    c4_en-validation/CE loss=7.25", "    c4_en-validation/PPL=1,408"]
    lines += ["Finished downstream evals in 1.0 seconds. Metrics:", "    piqa (CE loss)=1.0"]
    lines += ["2026 INFO [console_logger:68] [step=30/2000,epoch=1]", "    train/CE loss=nan"]
    trace = read_one(tmp_path, lines, "olmo")
    loss = points(trace, "loss")
    assert [loss[step] for step in (1, 10, 20)] == [8.9, 8.0, 7.0] and math.isnan(loss[30])
    assert points(trace, "grad_norm")[10] == 0.75 and points(trace, "skipped")[10] == 0.0
    assert points(trace, "learning_rate")[20] == 0.0003
    assert held_out(trace, "c4_en-validation") == {20: 7.25} and len(trace.validations) == 1


def test_composer(tmp_path):
    lines = []
    for step in (1, 2, 3):
        lines += [
            f"[batch={step}/100]:",
            f"\t Train time/batch: {step - 1}",
            "\t Train trainer/device_train_microbatch_size: 8",
            f"\t Train loss/train/total: {12 - step}.5000",
            f"\t Train metrics/train/LanguageCrossEntropy: {12 - step}.5001",
            "\t Train l2_norm/grad/global: 0.7500",
            "\t Train lr-DecoupledAdamW/group0: 0.0001",
            "\t Train throughput/tokens_per_sec: 20082.8418",
        ]
    lines += ["[Eval batch=1/9] Eval on eval data", "[Eval batch=9/9] Eval on eval data:"]
    lines += ["\t Eval metrics/eval/LanguageCrossEntropy: 9.2500"]
    lines += [
        "\t Eval metrics/eval/LanguagePerplexity: 99.0",
        "\t Eval metrics/c4/LanguageCrossEntropy: 8",
    ]
    trace = read_one(tmp_path, with_junk(lines), "composer")
    assert points(trace, "loss") == {1: 11.5, 2: 10.5, 3: 9.5}
    assert points(trace, "grad_norm")[2] == 0.75 and points(trace, "learning_rate")[2] == 1e-4
    assert held_out(trace) == {3: 9.25} and held_out(trace, "c4") == {3: 8.0}


def test_composer_epochs_prefixes_and_the_oldest_names(tmp_path):
    lines = []
    for epoch, batch in ((1, 4), (1, 5), (2, 1), (2, 2)):
        lines += [
            f"0: [epoch={epoch}][batch={batch}/5]:",
            "0:       Train LanguageCrossEntropy: 8.5",
        ]
    trace = read_one(tmp_path, lines, "composer")
    assert points(trace, "loss") == dict.fromkeys((4, 5, 6, 7), 8.5)


def test_litgpt(tmp_path):
    lines = [
        f"Epoch 1 | iter {i} step {i // 2} | loss train: {4 - i / 10:.3f}, val: n/a | iter time: 9"
        for i in range(2, 10)
    ]
    lines += ["iter 9: val loss 3.0000, val time: 99.00 ms"]
    lines += ["Epoch 1 | iter 10 step 5 | loss train: nan, val: 3.000 | iter time: 9 ms (step)"]
    trace = read_one(tmp_path, with_junk(lines), "litgpt")
    loss = points(trace, "loss")
    assert loss[1] == 3.75 and math.isnan(loss[5])  # micro-batches 2 and 3: the mean
    assert held_out(trace) == {4: 3.0}


def test_fairseq_text(tmp_path):
    lines = [
        f"2023-06-13 17:31:54 | INFO | train_inner | epoch 001:  {n:5d} / 282 loss={9 - n / 100}, "
        f"nll_loss=1.243, ppl=8.89, wps=132396, num_updates={n}, lr=0.0001, gnorm=0.5, clip=0, "
        "loss_scale=32768, train_wall=46, wall=0"
        for n in (100, 200, 280)
    ]
    lines += [
        "2023 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 4.5 | nll_loss 4.25 | "
        "ppl 6550.94 | num_updates 282 | best_loss 4.5",
        "2023 | INFO | valid | epoch 001 | valid on 'valid1' subset | loss 5.5 | num_updates 282",
        "2023 | INFO | train | epoch 001 | loss 8.8 | nll_loss 7 | num_updates 282 | gnorm 0.5",
    ]
    trace = read_one(tmp_path, with_junk(lines), "fairseq")
    assert points(trace, "loss") == {100: 8.0, 200: 7.0, 280: 6.2}
    assert points(trace, "grad_norm") == dict.fromkeys((100, 200, 280), 0.5)
    assert points(trace, "loss_scale")[100] == 32768.0
    assert held_out(trace) == {282: 4.5} and held_out(trace, "valid1") == {282: 5.5}


def test_fairseq_json(tmp_path):
    lines = [
        f'2021-12-01 10:00:00 | INFO | train_inner | {{"epoch": 2, "update": 1.1, "loss": "{n}.5", '
        f'"ppl": "9", "num_updates": "{n}", "lr": "0.0001", "gnorm": "0.25"}}'
        for n in (3, 4, 5)
    ]
    lines += [
        '2021 | INFO | valid | {"epoch": 2, "valid_loss": "4.033", "valid_nll_loss": "2.269", '
        '"valid_num_updates": "5", "valid_best_loss": "4.033"}'
    ]
    trace = read_one(tmp_path, lines, "fairseq")
    assert points(trace, "loss") == {3: 3.5, 4: 4.5, 5: 5.5}
    assert points(trace, "grad_norm")[4] == 0.25 and held_out(trace) == {5: 4.033}


def test_torchtune(tmp_path):
    lines = [
        f"Step {step} | loss:{3 - step / 10} lr:2e-05 tokens_per_second_per_gpu:12.5 grad_norm:1.5 "
        for step in (1, 2, 3)
    ]
    lines += ["Step 3 | val_loss:2.5 "]
    trace = read_one(tmp_path, with_junk(lines), "torchtune")
    assert points(trace, "loss") == {1: 2.9, 2: 2.8, 3: 2.7}
    assert points(trace, "grad_norm")[2] == 1.5 and points(trace, "learning_rate")[2] == 2e-5
    assert held_out(trace) == {3: 2.5}


def test_torchtune_bar(tmp_path):
    bar = "".join(
        f"\r1|{step}|Loss: {3 - step / 10}:  10%|#         | {step}/100 [00:09<01:00,  1.2s/it]"
        for step in (1, 2, 2, 3)
    )
    assert points(read_one(tmp_path, bar, "torchtune"), "loss") == {1: 2.9, 2: 2.8, 3: 2.7}


def test_deepspeed(tmp_path):
    lines = []
    for step in (10, 20, 30):
        lines.append(
            f"[2023-10-20 00:20:30,761] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, "
            f"skipped={step // 20}, lr=[1e-05, 1e-05], mom=[[0.9, 0.999], [0.9, 0.999]]"
        )
        lines.append(f"steps: {step} loss: {9 - step / 10:.4f} iter time (s): 3.4 samples/sec: 147")
    trace = read_one(tmp_path, with_junk(lines), "deepspeed")
    assert points(trace, "loss") == {10: 8.0, 20: 7.0, 30: 6.0}
    assert points(trace, "skipped") == {10: 0.0, 20: 1.0, 30: 0.0}
    assert points(trace, "learning_rate")[10] == 1e-5
    assert sniffed(lines[::2]) == ""


def test_two_runs_of_a_block_format(tmp_path):
    run = []
    for step in range(1, 30):
        run += [f"[step={step}/30,epoch=1]", f"    train/CE loss={5 - step / 30:.4f}"]
    traces = read_all(tmp_path, run + run)
    assert [len(trace.train["loss"].steps) for trace in traces] == [29, 29]


def test_torchtune_objectives(tmp_path):
    plain = [f"Step {step} | loss:0.69 lr:2e-05 " for step in (1, 2, 3)]
    assert read_one(tmp_path, plain, "torchtune").objective == "lm"
    dpo = [line + "rewards/chosen:0.5 rewards/margins:0.1 " for line in plain]
    assert read_one(tmp_path, dpo, "torchtune").objective == "preference"
