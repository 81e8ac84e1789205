from __future__ import annotations

import math
from pathlib import Path

from pilot.readers.registry import read
from pilot.series.types import Trace


def one(path: Path, text: str) -> Trace:
    path.write_text(text, encoding="utf-8")
    (trace,) = read(path)
    return trace


def test_hugging_face_output_among_bars_and_warnings(tmp_path: Path) -> None:
    trace = one(
        tmp_path / "out.log",
        "{'learning_rate': 1e-4, 'optim': 'adamw', 'max_grad_norm': 1.0}\n"
        "  1%|#   | 1/90 [00:01<01:29, 1.0s/it]\r"
        "  2%|#   | 2/90 [00:02<01:28, 1.0s/it]{'loss': 2.5, 'grad_norm': 1.5, 'epoch': 0.1}\n"
        "{'eval_loss': 2.0, 'eval_runtime': 3.1, 'epoch': 0.1}\n"
        "06/01/2024 10:00:00 - INFO - __main__ -   {'loss': 2.25, 'grad_norm': nan, 'epoch': 0.2}\n"
        "{'loss': 1e-05, 'grad_norm': inf, 'epoch': 0.3}{'loss': 0.0, 'epoch': 0.4}\n"
        "{'train_runtime': 60.1, 'train_loss': 1.9, 'epoch': 0.4}\n",
    )
    assert (trace.format, trace.axis) == ("dicts", "records")
    assert trace.train["loss"].values.tolist() == [2.5, 2.25, 1e-5, 0.0]
    assert math.isnan(trace.train["grad_norm"].values[1])
    assert trace.train["grad_norm"].values[2] == math.inf
    assert trace.validations[""].steps.tolist() == [1]
    assert trace.train["epoch"].values.tolist() == [0.1, 0.2, 0.3, 0.4]


def test_numbers_as_strings_and_numpy_types(tmp_path: Path) -> None:
    trace = one(
        tmp_path / "out.log",
        "{'loss': '5.469', 'grad_norm': '1.682', 'learning_rate': '0', 'ppl': '237.1'}\n"
        "{'loss': np.float64(5.25), 'grad_norm': tensor(1.5), 'learning_rate': '6.667e-06'}\n"
        "{'loss': 'nan', 'grad_norm': 'inf', 'learning_rate': '1e-05'}\n",
    )
    assert trace.train["loss"].values[:2].tolist() == [5.469, 5.25]
    assert math.isnan(trace.train["loss"].values[2])
    assert trace.train["grad_norm"].values.tolist() == [1.682, 1.5, math.inf]
    assert trace.train["learning_rate"].values.tolist() == [0.0, 6.667e-06, 1e-05]
    assert trace.objective == "lm"


def test_json_objects_behind_a_prefix_with_their_own_step(tmp_path: Path) -> None:
    lines = [
        f'2024-01-01 | INFO | train | {{"step": {s}, "loss": "{3 - s / 10}", "x": {{"y": 1}}}}\n'
        for s in (1, 2, 3)
    ]
    trace = one(tmp_path / "out.log", "".join(lines))
    assert trace.axis == "steps" and trace.train["loss"].values.tolist() == [2.9, 2.8, 2.7]


def test_a_cut_dictionary_gives_whole_numbers_only(tmp_path: Path) -> None:
    text = "{'loss': 2.5, 'grad_norm': 1.0}\n" * 3 + "{'loss': 2.25, 'grad_norm': 1.7"
    trace = one(tmp_path / "out.log", text)
    assert trace.train["loss"].values.tolist() == [2.5, 2.5, 2.5, 2.25]
    assert len(trace.train["grad_norm"].steps) == 3 and "cut off" in trace.notes[0]


def test_the_history_printed_again_at_the_end_is_left_out(tmp_path: Path) -> None:
    rows = [f"{{'loss': {3 - i / 100}, 'epoch': {i / 10}}}" for i in range(30)]
    trace = one(tmp_path / "out.log", "\n".join(rows) + "\n[" + ", ".join(rows) + "]\n")
    assert len(trace.train["loss"].steps) == 30 and "printed again" in trace.notes[0]


def test_two_trainings_in_one_file(tmp_path: Path) -> None:
    rows = "".join(f"{{'loss': 2.0, 'epoch': {i / 10}}}\n" for i in range(1, 31))
    path = tmp_path / "out.log"
    path.write_text(rows + "{'train_runtime': 9.0, 'train_loss': 2.0, 'epoch': 3.0}\n" + rows)
    assert [len(t.train["loss"].steps) for t in read(path)] == [30, 30]


def test_utf_16_with_bom(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("{'loss': 2.0, 'epoch': 0.1}\r\n" * 3, encoding="utf-16")
    assert len(read(path)[0].train["loss"].steps) == 3


def bar(step: int, total: int = 400) -> str:
    return f" {100 * step // total}%|##  | {step}/{total} [00:10<01:20,  1.0it/s]\n"


def test_the_bars_around_tell_where_the_records_stand(tmp_path: Path) -> None:
    text = "".join(
        bar(step) + f"{{'loss': {3 - step / 100}, 'epoch': {step / 50}}}\n" + bar(step)
        for step in range(10, 101, 10)
    )
    evaluation = "".join(bar(step, 7) for step in range(1, 8)) + "{'eval_loss': 2.5}\n"
    trace = one(tmp_path / "out.log", text + evaluation + bar(100))
    assert trace.axis == "records" and trace.train["loss"].steps.tolist() == list(range(1, 11))
    assert trace.notes == (
        "the progress bar counts 400 steps: record 1 is step 10, record 10 is step 100",
    )


def test_bars_that_say_nothing_of_the_records_are_not_mentioned(tmp_path: Path) -> None:
    rows = "".join(f"{{'loss': {3 - i / 100}, 'epoch': {i / 10}}}\n" for i in range(20))
    assert one(tmp_path / "out.log", bar(3) + rows + bar(9)).notes == ()
