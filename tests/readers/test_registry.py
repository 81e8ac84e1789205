from __future__ import annotations

import bz2
import json
import lzma
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pilot.errors import LogError
from pilot.readers import refusals
from pilot.readers.registry import FORMATS, READERS, read
from tests.factories import build_view, write_view

STATE = {"log_history": [{"loss": 2.0, "step": 10}, {"loss": 1.5, "step": 20}]}
LINES = '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.5}\n'


def refused(path: Path, **kwargs: str) -> str:
    with pytest.raises(LogError) as caught:
        read(path, **kwargs)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_every_format_has_one_name_and_says_what_it_wants() -> None:
    assert len(set(FORMATS)) == len(FORMATS)
    assert FORMATS[:4] == ("trainer_state", "json", "trainer_log", "jsonl")
    assert all(reader.wants and "\n" not in reader.wants for reader in READERS)


def test_a_text_that_is_no_log_says_what_was_found_and_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear \x1b[31mreader\x07,\nloss of life\n<b>\u202ebold\n")
    text = refused(path)
    assert "no training log was recognised" in text and "Dear reader\\x07," in text
    assert "\\u202ebold" in text and "\u202e" not in text
    assert all(f"{name}: " in text for name in FORMATS)


def test_a_configuration_and_a_summary_are_no_log(tmp_path: Path) -> None:
    path = tmp_path / "all_results.json"
    path.write_text(json.dumps({"epoch": 3.0, "train_loss": 1.5, "train_runtime": 9.0}, indent=1))
    assert "no training log was recognised" in refused(path)
    path.write_text(json.dumps({"hidden_size": 64, "layers": {"loss_type": "x"}}, indent=1))
    assert "no training log was recognised" in refused(path)


@pytest.mark.parametrize("data", [b"", b"\n \n", b"\xef\xbb\xbf", b"\xff\xfe"])
def test_an_empty_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.log").write_bytes(data)
    assert "the file is empty" in refused(tmp_path / "a.log")


def test_no_file_and_no_permission(tmp_path: Path) -> None:
    assert "there is no such file" in refused(tmp_path / "a.log")
    error = refusals.refuse_unreadable(tmp_path, PermissionError(13, "Permission denied"))
    assert "permission denied" in str(error)


def test_files_of_other_kinds(tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    kinds = {
        "a PNG image": b"\x89PNG\r\n\x1a\n" + b"\0" * 64,
        "a safetensors model": len(header).to_bytes(8, "little") + header + b"\0" * 4,
        "a binary file": bytes(range(256)) * 8,
        "a Python pickle": b"\x80\x04\x95loss",
    }
    for kind, data in kinds.items():
        (tmp_path / "file").write_bytes(data)
        assert f"is {kind}" in refused(tmp_path / "file")
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("data.pkl", "x")
    assert "is a ZIP archive" in refused(tmp_path / "model.pt")
    np.save(tmp_path / "a.npy", np.zeros(3))
    assert "is a NumPy array" in refused(tmp_path / "a.npy")


def test_packed_files_and_formats_named_once(tmp_path: Path) -> None:
    (tmp_path / "a.xz").write_bytes(lzma.compress(LINES.encode()))
    (tmp_path / "a.bz2").write_bytes(bz2.compress(LINES.encode()))
    assert "is packed by xz, which" in refused(tmp_path / "a.xz")
    assert refused(tmp_path / "a.bz2").endswith("remedy: unpack it first")
    (tmp_path / "notes.txt").write_text("nothing of the kind\n")
    text = refused(tmp_path / "notes.txt")
    assert text.count("nanochat") == 1 and text.count("tensorboard") == 1


def test_folders_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    error = refusals.refuse_folder(tmp_path, ["a.log"], [], [tmp_path / "secret"])
    assert "folders that could not be opened: secret" in str(error)


def test_a_given_format(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(LINES)
    assert read(path, format="jsonl")[0].train["loss"].steps.tolist() == [1, 2]
    assert "holds no point as csv" in refused(path, format="csv")
    text = refused(path, format="xyz")
    assert "there is no format 'xyz'" in text and "jsonl" in text


def test_a_log_behind_a_long_program_listing(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    code = "    x = {'loss': loss.item()}  # the program prints itself\n" * 12_000
    path.write_text(code + "{'loss': 2.0, 'epoch': 0.1}\n" * 3)
    (trace,) = read(path)
    assert trace.format == "dicts" and len(trace.train["loss"].steps) == 3


def test_trainer_folders(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for step in (9, 10):
        folder = run / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        state = {"log_history": [{"loss": float(step), "step": step}]}
        (folder / "trainer_state.json").write_text(json.dumps(state))
    (trace,) = read(run)
    assert trace.train["loss"].steps.tolist() == [10]
    assert trace.source.endswith("checkpoint-10/trainer_state.json")
    (run / "trainer_state.json").write_text(json.dumps(STATE))
    assert read(run)[0].train["loss"].steps.tolist() == [10, 20]


def test_a_folder_with_one_log_below(tmp_path: Path) -> None:
    below = tmp_path / "lightning_logs" / "version_0"
    below.mkdir(parents=True)
    (below / "hparams.yaml").write_text("lr: 1")
    (below / "metrics.csv").write_text("step,train_loss\n1,2.0\n2,1.5\n")
    assert read(tmp_path)[0].format == "csv"


def test_folders_without_a_log_or_with_too_many(tmp_path: Path) -> None:
    text = refused(tmp_path)
    assert "no log that is known by its name" in text and "trainer_state.json" in text
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(LINES)
    assert "files that may be logs: a.log, b.log" in refused(tmp_path)


def test_a_pilot_and_one_of_its_arms(tmp_path: Path) -> None:
    view = build_view()
    root = write_view(tmp_path, view)
    traces = read(root)
    assert [t.source for t in traces] == [str(root / "arms" / name) for name in sorted(view.arms)]
    (trace,) = read(root / "arms" / "baseline")
    steps = view.arms["baseline"].steps
    assert trace.format == "pilot" and trace.train["loss"].steps.tolist() == [r.step for r in steps]
    assert trace.train["loss"].values.tolist() == [r.loss for r in steps]
    names = {record.name for record in view.arms["baseline"].validations}
    assert set(trace.validations) == names


def test_reading_needs_no_heavy_package() -> None:
    code = "import sys, pilot.readers.registry; print({'torch', 'mlflow', 'tensorboard', "
    code += "'matplotlib', 'pandas', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_trainer_log_without_a_loss_is_called_so(tmp_path: Path) -> None:
    rows = "".join(f'{{"current_steps": {i}, "total_steps": 9}}\n' for i in range(1, 10))
    (tmp_path / "trainer_log.jsonl").write_text(rows)
    assert "none of its 9 lines has a loss" in refused(tmp_path / "trainer_log.jsonl")


def test_only_the_summary_of_a_run(tmp_path: Path) -> None:
    text = "  0%|  | 0/9 [00:00<?]\n{'train_runtime': 4.5, 'train_loss': 2.6637, 'epoch': 1.0}\n"
    (tmp_path / "a.log").write_text(text)
    assert "only the summary at the end (train_loss 2.6637)" in refused(tmp_path / "a.log")


def test_overflows_without_a_loss(tmp_path: Path) -> None:
    text = "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 8, reducing to 4\n"
    (tmp_path / "a.log").write_text("starting\n" + text * 3)
    assert "an update was skipped: 3, but none with a loss" in refused(tmp_path / "a.log")


def test_columns_without_names(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("".join(f"{i}  {i * 0.5}  1.25\n" for i in range(9)))
    assert "columns of numbers without names" in refused(tmp_path / "a.log")


def test_the_summary_of_a_wandb_run_is_no_run_of_one_point(tmp_path: Path) -> None:
    row = '{"train/loss": 2.5, "_step": 9, "_runtime": 12.5, "_timestamp": 1.7e9'
    (tmp_path / "a.json").write_text(row + ', "_wandb": {"runtime": 12}}')
    assert "is the summary of a W&B run" in refused(tmp_path / "a.json")
    (tmp_path / "b.json").write_text(row + "}\n")
    assert "is the summary of a W&B run" in refused(tmp_path / "b.json")
    (tmp_path / "c.jsonl").write_text(f"{row}}}\n{row.replace('9,', '19,')}}}\n")
    (trace,) = read(tmp_path / "c.jsonl")
    assert trace.train["loss"].steps.tolist() == [9, 19]
