"""Progress bars that show a loss, and what stands between them."""

from __future__ import annotations

import math

from tests.readers.text_logs import held_out, points, read_all, read_one


def tqdm(step: int, total: int, post: str, before: str = "") -> str:
    return (
        f"{before}{100 * step // total:3d}%|##   | {step}/{total} [00:01<00:09,  9.1it/s, {post}]"
    )


def test_tqdm_with_a_loss(tmp_path):
    bar = "\r".join(tqdm(step, 9, f"loss={5 - step / 10}, lr=1e-4") for step in (1, 1, 2, 3, 3))
    trace = read_one(tmp_path, bar, "progress-bar")
    assert points(trace, "loss") == {1: 4.9, 2: 4.8, 3: 4.7}


def test_bar_of_several_epochs_with_validations(tmp_path):
    lines = []
    for epoch in (0, 1, 2):
        lines += [
            tqdm(step, 20, f"v_num=0, train_loss={4 - epoch}", f"Epoch {epoch}: ")
            for step in range(1, 21)
        ]
        lines += [tqdm(step, 2, "loss=9.0", "Validation DataLoader 0: ") for step in (1, 2)]
        lines += [tqdm(20, 20, f"v_num=0, train_loss={4 - epoch}, val_loss=5", f"Epoch {epoch}: ")]
    trace = read_one(tmp_path, lines, "progress-bar")
    loss = points(trace, "loss")
    assert list(loss.values()) == [4.0] * 20 + [3.0] * 20 + [2.0] * 20
    assert len(held_out(trace)) == 3


def test_bar_without_epochs_that_begins_again(tmp_path):
    lines = [tqdm(step, 20, f"loss={loss}") for loss in (3, 2) for step in range(1, 21)]
    (trace,) = read_all(tmp_path, lines)
    assert list(points(trace, "loss").values()) == [3.0] * 20 + [2.0] * 20


def test_bar_with_a_global_step(tmp_path):
    lines = [
        tqdm(step, 9, f"reduced_train_loss=7.5, global_step={step * 10}.0, consumed_samples=9.0")
        for step in (1, 2, 3)
    ]
    trace = read_one(tmp_path, lines, "progress-bar")
    assert points(trace, "loss") == {10: 7.5, 20: 7.5, 30: 7.5}


def test_keras(tmp_path):
    lines = []
    for epoch in (1, 2):
        lines.append(f"Epoch {epoch}/2")
        for step in range(1, 11):
            lines.append(f"{step:2d}/10 [==>...] - ETA: 0s - loss: {4 - epoch}.5 - accuracy: 0.1")
        lines.append(f"10/10 [====] - 1s 9ms/step - loss: {4 - epoch}.25 - val_loss: {5 - epoch}")
    trace = read_one(tmp_path, lines, "progress-bar")
    loss = list(points(trace, "loss").values())
    assert loss == [3.5] * 9 + [3.25] + [2.5] * 9 + [2.25]
    assert list(held_out(trace).values()) == [4.0, 3.0]


def test_bars_with_the_mean_of_an_epoch_between_them(tmp_path):
    lines = []
    for epoch, mean in ((1, "2.5"), (2, "nan")):
        before = f"Training Epoch: {epoch}/9, step {{}}/20 completed (loss: 2.5): "
        lines += [
            f"{before.format(s)} {5 * s}%|##  | {s}/20 [04:02<00:00,  3.78s/it]"
            for s in range(1, 21)
        ]
        lines += [
            "evaluating Epoch: 100%|###| 9/9 [00:01<00:00]",
            f" eval_ppl=tensor(9.0) eval_epoch_loss=tensor({mean}, device='cuda:0')",
            f"Epoch {epoch}: train_perplexity=9.0, train_epoch_loss={mean}, epoch time 242.3s",
        ]
    trace = read_one(tmp_path, lines, "progress-bar")
    loss, held = list(points(trace, "loss").values()), list(held_out(trace).values())
    assert loss[:39] == [2.5] * 39 and math.isnan(loss[39]) and len(loss) == 40
    assert held[0] == 2.5 and math.isnan(held[1]) and len(held) == 2


def test_bars_of_many_shapes_read_alike(tmp_path):
    lines = [
        f"|Loss: {loss}:  {step}%|{'█' * (step // 9)}{' ' * 9}| {step}/100 [0{step % 7}:01<00:09]"
        for step, loss in ((1, "2.5"), (9, "nan"), (10, "1e-05"), (99, "12.25"), (100, "inf"))
    ]
    loss = points(read_one(tmp_path, lines, "progress-bar"), "loss")
    assert math.isnan(loss.pop(9)) and loss == {1: 2.5, 10: 1e-5, 99: 12.25, 100: math.inf}
