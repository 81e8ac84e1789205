from __future__ import annotations

import math
from pathlib import Path

import pytest

from pilot.readers.registry import read
from tests.readers.events import event, scalar, tensor, write

NAME = "events.out.tfevents.1700000000.host.1.0"


def test_scalars_of_the_trainer(tmp_path: Path) -> None:
    events = [
        event(
            step,
            scalar("train/loss", 3.0 - step / 100),
            scalar("train/grad_norm", math.nan if step == 20 else 1.5),
            scalar("train/epoch", step / 50),
        )
        for step in (10, 20, 30)
    ]
    events += [event(30, scalar("eval/loss", 2.5)), event(30, scalar("eval/runtime", 9.0))]
    events += [event(30, scalar("train/train_loss", 9.0))]
    (trace,) = read(write(tmp_path / NAME, *events))
    assert (trace.format, trace.axis) == ("tensorboard", "steps")
    assert trace.train["loss"].steps.tolist() == [10, 20, 30]
    assert trace.train["loss"].values.tolist() == pytest.approx([2.9, 2.8, 2.7])
    assert math.isnan(trace.train["grad_norm"].values[1])
    assert trace.validations[""].values.tolist() == [2.5] and len(trace.validations) == 1


@pytest.mark.parametrize("packed", [True, False])
def test_scalars_as_tensors(tmp_path: Path, packed: bool) -> None:
    events = [event(s, tensor("Loss/train", 1.5, packed=packed)) for s in (1, 2)]
    (trace,) = read(write(tmp_path / NAME, *events))
    assert trace.train["loss"].values.tolist() == [1.5, 1.5]


def test_a_torn_file_and_one_without_the_usual_name(tmp_path: Path) -> None:
    path = write(tmp_path / "log.bin", *[event(s, scalar("loss", 1.0)) for s in range(1, 5)])
    path.write_bytes(path.read_bytes()[:-9])
    (trace,) = read(path)
    assert trace.train["loss"].steps.tolist() == [1, 2, 3]
    assert "cut off" in trace.notes[0]


def test_a_folder_with_a_restart_and_another_run(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    write(runs / "a" / NAME, *[event(s, scalar("loss", 1.0)) for s in range(1, 101)])
    later = NAME.replace("1700000000", "1700009999")
    write(runs / "a" / later, *[event(s, scalar("loss", 2.0)) for s in range(61, 121)])
    write(runs / "b" / NAME, event(1, scalar("loss", 3.0)), event(2, scalar("loss", 3.0)))
    a, b = read(tmp_path)
    assert a.source == str(runs / "a") and b.source == str(runs / "b")
    assert a.train["loss"].values.tolist() == [1.0] * 60 + [2.0] * 60
    assert "resumed" in a.notes[0] and b.train["loss"].values.tolist() == [3.0, 3.0]


def test_a_file_of_tensorboard_itself(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(5):
            writer.add_scalar("train/loss", 2.0 - step / 8, step)
        writer.add_scalar("eval/loss", 1.75, 4, new_style=True)
    (trace,) = read(tmp_path)
    assert trace.train["loss"].values.tolist() == [2.0, 1.875, 1.75, 1.625, 1.5]
    assert trace.validations[""].values.tolist() == [1.75]
