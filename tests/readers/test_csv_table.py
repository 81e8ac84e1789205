from __future__ import annotations

import math
from pathlib import Path

import pytest

from pilot.readers.registry import read
from pilot.series.types import Trace


def traces(path: Path, text: str) -> list[Trace]:
    path.write_text(text, encoding="utf-8")
    return read(path)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_plain_table(tmp_path: Path, delimiter: str) -> None:
    text = "iter,train_loss,val_loss,lr\n0,4.5,4.25,1e-05\n10,nan,,2e-05\n20,3.5,3.25,\n"
    (trace,) = traces(tmp_path / "a.csv", text.replace(",", delimiter))
    assert (trace.format, trace.axis) == ("csv", "steps")
    assert trace.train["loss"].steps.tolist() == [0, 10, 20]
    assert math.isnan(trace.train["loss"].values[1])
    assert trace.validations[""].steps.tolist() == [0, 20]
    assert trace.train["learning_rate"].values.tolist() == [1e-5, 2e-5]


def test_a_wandb_export_of_two_runs(tmp_path: Path) -> None:
    (a, b) = traces(
        tmp_path / "wandb.csv",
        '"Step","run a - train/loss","run a - train/loss__MIN","run a - train/loss__MAX",'
        '"run-b - train/loss","run-b - train/loss__MIN","run-b - train/loss__MAX"\n'
        '"1","2.5","2.5","2.5","3.5","3.5","3.5"\n"2","2.25","1","9","","",""\n"3","","","","3","1","9"\n',
    )
    assert a.source.endswith("wandb.csv#run a") and b.source.endswith("#run-b")
    assert a.train["loss"].steps.tolist() == [1, 2] and a.train["loss"].values[1] == 2.25
    assert b.train["loss"].steps.tolist() == [1, 3] and b.train["loss"].values[1] == 3.0


def test_a_wandb_history_with_two_counters_and_media(tmp_path: Path) -> None:
    rows = "".join(f",1e-5,{10 * i},2.5,{i},6242\n" for i in range(4))
    media = "\"{'path': 'a.html', 'size': 2}\",,,,4,6242\n"
    (trace,) = traces(tmp_path / "h.csv", f"Sample,lr,iter,train/loss,_step,seed\n{rows}{media}")
    assert trace.train["loss"].steps.tolist() == [0, 10, 20, 30]


def test_lightning_with_sparse_columns(tmp_path: Path) -> None:
    (trace,) = traces(
        tmp_path / "metrics.csv",
        "epoch,lr-AdamW,step,train_loss_epoch,train_loss_step,val_loss\n"
        ",0.001,0,,,\n0,,49,,2.5,\n0,,99,,2.25,\n0,,99,,,2.0\n0,,99,2.4,,\n1,,149,,2.125,\n",
    )
    assert trace.train["loss"].steps.tolist() == [49, 99, 149]
    assert trace.validations[""].steps.tolist() == [99]
    assert trace.train["learning_rate"].steps.tolist() == [0]


def test_keras_with_epochs_only(tmp_path: Path) -> None:
    text = "epoch,accuracy,loss,val_accuracy,val_loss\n" + "".join(
        f"{e},0.5,{3 - e},0.4,{3.5 - e}\n" for e in range(3)
    )
    (trace,) = traces(tmp_path / "a.csv", text)
    assert trace.axis == "epochs" and trace.train["loss"].values.tolist() == [3.0, 2.0, 1.0]
    assert trace.validations[""].steps.tolist() == [0, 1, 2]


def test_many_rows_of_an_epoch_are_records(tmp_path: Path) -> None:
    text = "epoch,loss\n" + "".join(f"{i // 4},{3 - i / 10}\n" for i in range(12))
    (trace,) = traces(tmp_path / "a.csv", text)
    assert trace.axis == "records" and trace.train["loss"].steps.tolist() == list(range(1, 13))


def test_cells_in_bold_and_remarks_behind(tmp_path: Path) -> None:
    text = "Step\t**train loss**\tval loss\n1\t**0.5**\t0.75\tthe best\n2\t0.25\t`0.5`\n"
    (trace,) = traces(tmp_path / "a.tsv", text)
    assert trace.train["loss"].values.tolist() == [0.5, 0.25]
    assert trace.validations[""].values.tolist() == [0.75, 0.5]


def test_decimal_commas_comments_and_a_torn_row(tmp_path: Path) -> None:
    text = "# my run\nstep;loss;grad_norm\n1;2,5;1,0\n2;2,25;\n3;2,"
    (trace,) = traces(tmp_path / "a.csv", text)
    assert trace.train["loss"].values.tolist() == [2.5, 2.25]


def test_a_notebook_table_with_titles_of_two_words(tmp_path: Path) -> None:
    text = "Step\tTraining Loss\tValidation Loss\n50\t1.5\t1.75\n100\t1.25\t1.5\n"
    (trace,) = traces(tmp_path / "a.txt", text)
    assert trace.train["loss"].values.tolist() == [1.5, 1.25]
    assert trace.validations[""].values.tolist() == [1.75, 1.5]
