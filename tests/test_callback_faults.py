"""``PilotCallback(out_dir=...)`` and everything that can go wrong: their run goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import pilot
from pilot.engines.recorder import Recorder
from pilot.errors import DiskFull, FolderError, UsageError
from pilot.folder import PilotFolder, read_json
from pilot.jsonl import write_json
from pilot.judge import judge, load_gates
from pilot.view import load
from tests.conftest import environment
from tests.engines.trainers import HELD, TRAIN, collate, make_trainer

ARGUMENTS: dict[str, Any] = {"max_steps": 8}


def watched(root: Path, rows: int = 0, **more: Any) -> Any:
    """A Trainer whose run is recorded in ``root/records``."""
    trainer = make_trainer(root / "theirs", **{**ARGUMENTS, **more})
    trainer.add_callback(pilot.PilotCallback(root / "records", validation_rows=rows))
    return trainer


def judged(root: Path, name: str = "records") -> dict[str, Any]:
    """The verdict on the records, with the gates by name."""
    view = load(root / name)
    verdict = dict(judge(view, load_gates(view)).verdict)
    verdict["by_name"] = {gate["name"]: gate for gate in verdict["gates"]}
    return verdict


def failing_after(count: int, error: BaseException) -> Callable[[Any], Any]:
    """A collator that raises once, after ``count`` batches of the training's size."""
    calls = []

    def made(rows: Any) -> Any:
        calls.extend([rows] if len(rows) > 1 else [])
        if len(calls) == count:
            raise error
        return collate(rows)

    return made


def test_a_watched_run_is_never_go_by_silence(tmp_path: Path) -> None:
    watched(tmp_path, rows=8).train()
    verdict = judged(tmp_path)
    assert verdict["verdict"] == "INCONCLUSIVE"
    assert verdict["by_name"]["progress"]["status"] == "undetermined"
    assert "let pilot train the beginning of this run" in verdict["next"]
    assert any("written by pilot.PilotCallback" in line for line in verdict["not_measured"])
    assert "resume" not in verdict["next"] and "verify" not in verdict["next"]


def test_a_script_that_trains_twice_has_two_folders(tmp_path: Path) -> None:
    trainer = watched(tmp_path)
    trainer.evaluate()
    trainer.train()
    with pytest.warns(UserWarning, match="recorded in .*records_2"):
        trainer.train()
    trainer.evaluate()
    own = ("training_step", "get_batch_samples", "_maybe_log_save_evaluate")
    assert not set(own) & set(vars(trainer))  # the Trainer is as it was
    for name in ("records", "records_2"):
        view = load(tmp_path / name)
        assert view.baseline is not None and [r.step for r in view.baseline.steps] == [*range(1, 9)]


def test_several_that_record_are_refused(tmp_path: Path) -> None:
    trainer = watched(tmp_path)
    trainer.add_callback(pilot.PilotCallback(tmp_path / "others"))
    with pytest.raises(UsageError, match="several"):
        trainer.train()


@pytest.mark.parametrize("name", ["config.yaml", "plan.json", "survey.json", "rows.npz"])
def test_files_of_their_own_are_not_overwritten(name: str, tmp_path: Path) -> None:
    root = tmp_path / "records"
    root.mkdir()
    (root / "notes.txt").write_text("does not matter")
    (root / name).write_text("their own")
    trainer = make_trainer(tmp_path / "theirs", **ARGUMENTS)
    trainer.add_callback(pilot.PilotCallback(root, validation_rows=0))
    with pytest.raises(FolderError, match=f"holds files of something else: {name}"):
        trainer.train()
    assert (root / name).read_text() == "their own" and len(list(root.iterdir())) == 2


def test_the_directory_itself_is_no_folder_for_records() -> None:
    for given in ("", ".", Path.cwd()):
        with pytest.raises(UsageError, match="is this directory: name a folder in it"):
            pilot.PilotCallback(given)


@pytest.mark.parametrize("kind", ["file", "below a file", "no place", "a pilot"])
def test_a_folder_that_cannot_be_used_is_said_before_the_first_step(
    kind: str, tmp_path: Path
) -> None:
    root = tmp_path / "records"
    if kind == "a pilot":
        root.mkdir()
        write_json(root / "start.json", {})
    elif kind != "no place":
        root.write_text("theirs")
        root = root / "x" if kind == "below a file" else root
    else:
        root = Path("/proc/none/records")
    trainer = make_trainer(tmp_path / "theirs", **ARGUMENTS)
    trainer.add_callback(pilot.PilotCallback(root, validation_rows=0))
    with pytest.raises(FolderError, match="give an"):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.parametrize("error", [DiskFull("x", OSError(28, "No space left")), TypeError("ours")])
def test_an_error_of_recording_does_not_end_their_run(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = make_trainer(tmp_path / "plain", **ARGUMENTS)
    plain.train()
    original = Recorder.on_step

    def on_step(self: Recorder, record: Any, resource: Any) -> None:
        if record.step == 4:
            raise error
        original(self, record, resource)

    monkeypatch.setattr(Recorder, "on_step", on_step)
    trainer = watched(tmp_path)
    with pytest.warns(UserWarning, match="recording stopped at step 5: .*; the run goes on") as got:
        trainer.train()
    assert len([w for w in got if "recording" in str(w.message)]) == 1
    assert _losses(trainer) == _losses(plain) and len(_losses(plain)) == 8
    outcome = judged(tmp_path)["by_name"]["outcome"]
    assert outcome["status"] == "undetermined" and "recording stopped at step 5" in str(outcome)
    assert load(tmp_path / "records").baseline.steps[-1].step == 3  # type: ignore[union-attr]


def _losses(trainer: Any) -> list[float]:
    return [log["loss"] for log in trainer.state.log_history if "loss" in log]


def test_batches_that_cannot_be_measured_are_no_reason_to_stop(tmp_path: Path) -> None:
    class Odd(dict[str, Any]):
        def values(self) -> Any:
            raise TypeError("not like other batches")

    trainer = watched(tmp_path, collator=lambda rows: Odd(collate(rows)))
    with pytest.warns(UserWarning, match="recording stopped at step 1"):
        trainer.train()
    assert trainer.state.global_step == 8


@pytest.mark.parametrize("count", [5, 6])
def test_ctrl_c_is_no_fault_of_the_recipe(count: int, tmp_path: Path) -> None:
    trainer = watched(tmp_path, collator=failing_after(count + 1, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    verdict = judged(tmp_path)
    assert verdict["verdict"] == "INCONCLUSIVE"
    text = f"the run was interrupted in step {count}: KeyboardInterrupt"
    assert text in verdict["why"] and "resume" not in verdict["next"]


def test_ctrl_c_during_a_validation_is_theirs(tmp_path: Path) -> None:
    rows: list[int] = []

    def made(batch: Any) -> Any:
        rows.extend(1 for row in batch if row in HELD)
        if len(rows) == 12:  # the first validation has 8 rows
            raise KeyboardInterrupt
        return collate(batch)

    with pytest.raises(KeyboardInterrupt):
        watched(tmp_path, rows=8, collator=made).train()
    assert "interrupted in step 3: KeyboardInterrupt" in judged(tmp_path)["why"]


def test_a_fault_while_evaluating_has_its_place(tmp_path: Path) -> None:
    def metrics(prediction: Any) -> Any:
        raise ValueError("metrics")

    trainer = watched(tmp_path, eval_strategy="steps", eval_steps=4)
    trainer.compute_metrics = metrics
    with pytest.raises(ValueError, match="metrics"):
        trainer.train()
    outcome = read_json(PilotFolder(tmp_path / "records").arm("baseline").outcome)
    assert (outcome["where"], outcome["step"], outcome["last_step"]) == ("evaluation", 4, 4)
    assert load(tmp_path / "records").baseline.steps[-1].step == 4  # type: ignore[union-attr]


def test_memory_that_runs_out_in_the_optimizer_is_an_outcome(tmp_path: Path) -> None:
    class Greedy(torch.optim.SGD):
        calls = 0

        def step(self, closure: Any = None) -> Any:
            self.calls += 1
            if self.calls == 3:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().step(closure)

    from tests.engines.trainers import make_model

    model = make_model()
    greedy = Greedy(model.parameters(), lr=0.1)
    trainer = watched(tmp_path, model=model, optimizers=(greedy, None))
    with pytest.raises(torch.OutOfMemoryError):
        trainer.train()
    assert "memory ran out in optimizer at step 3" in judged(tmp_path)["why"]


def test_a_retry_in_the_same_script_goes_on(tmp_path: Path) -> None:
    saved = {"save_strategy": "steps", "save_steps": 2}
    trainer = watched(tmp_path, collator=failing_after(6, RuntimeError("flaky")), **saved)
    with pytest.raises(RuntimeError, match="flaky"):
        trainer.train()
    assert judged(tmp_path)["by_name"]["outcome"]["status"] == "fail"
    trainer.train(resume_from_checkpoint=True)
    assert judged(tmp_path)["by_name"]["outcome"]["status"] == "pass"
    view = load(tmp_path / "records")
    assert view.baseline is not None and [r.step for r in view.baseline.steps] == [*range(1, 9)]
    trainer.train(resume_from_checkpoint=True)  # nothing is left to be done
    assert judged(tmp_path)["by_name"]["movement"]["status"] == "pass"
    again = watched(tmp_path / "new", rows=8, **saved)
    again.train(resume_from_checkpoint=str(tmp_path / "theirs" / "checkpoint-4"))
    part = load(tmp_path / "new" / "records")  # only the part that was watched is planned
    assert (
        part.plan.start_step == 4
        and judged(tmp_path / "new")["by_name"]["coverage"]["status"] == "pass"
    )


def test_a_run_that_ends_early_is_not_covered(tmp_path: Path) -> None:
    from transformers import EarlyStoppingCallback

    checks = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "max_steps": 20}
    trainer = watched(tmp_path, rows=8, **checks, **best)
    trainer.add_callback(EarlyStoppingCallback(1, early_stopping_threshold=100.0))
    trainer.train()
    verdict = judged(tmp_path)
    assert trainer.state.global_step == 4
    assert verdict["by_name"]["coverage"]["status"] == "undetermined"
    assert (
        verdict["by_name"]["validation"]["status"] == "not_measured"
    )  # the best model, not the last


class Endless(torch.utils.data.IterableDataset[Any]):
    """Rows without a length."""

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from TRAIN


@pytest.mark.parametrize(
    ("more", "steps"),
    [
        ({"max_steps": -1, "num_train_epochs": 1}, 8),
        ({"train": Endless()}, 8),
        ({"max_steps": 1}, 1),
        ({"max_steps": 4, "warmup_steps": 4}, 4),
    ],
    ids=["epochs", "iterable", "one step", "warm-up only"],
)
def test_runs_of_other_shapes_are_recorded(more: Any, steps: int, tmp_path: Path) -> None:
    watched(tmp_path, rows=8, **more).train()
    view = load(tmp_path / "records")
    assert view.baseline is not None and len(view.baseline.steps) == steps
    assert judged(tmp_path)["verdict"] != "GO"
    if "train" in more:
        assert any("has no length" in line for line in judged(tmp_path)["not_measured"])


def test_no_sets_and_collators_that_want_several_rows(tmp_path: Path) -> None:
    trainer = watched(tmp_path / "a", rows=8)
    trainer.eval_dataset = None
    trainer.train()
    assert judged(tmp_path / "a")["by_name"]["validation"]["status"] == "not_measured"

    def several(rows: Any) -> Any:
        if len(rows) < 2:
            raise ValueError("at least two rows")
        return collate(rows)

    trainer = watched(tmp_path / "b", rows=8, collator=several)
    with pytest.warns(UserWarning, match="validation is left out: ValueError: at least two rows"):
        trainer.train()
    lines = judged(tmp_path / "b")["not_measured"]
    assert any("lengths of the rows" in line for line in lines)


def test_an_sft_trainer_is_recorded(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = Path(__file__).parents[1] / "recipes" / "assets" / "llama_1m"
    rows = [{"prompt": f"{n} and one?", "completion": f" It is {n + 1}."} for n in range(24)]
    values = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "max_steps": 4}
    trainer = trl.SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        processing_class=AutoTokenizer.from_pretrained(folder),
        args=trl.SFTConfig(output_dir=str(tmp_path / "theirs"), **values),
        train_dataset=Dataset.from_list(rows),
        eval_dataset=Dataset.from_list(rows[:8]),
        callbacks=[pilot.PilotCallback(tmp_path / "records")],
    )
    trainer.train()
    verdict = judged(tmp_path)
    assert verdict["by_name"]["validation"]["status"] == "pass"
    assert verdict["by_name"]["coverage"]["status"] == "pass"
    steps = load(tmp_path / "records").baseline.steps  # type: ignore[union-attr]
    assert 0 < steps[0].num_supervised_tokens < steps[0].num_tokens  # prompts are masked


SEVERAL = """
import sys, os
import pilot
import torch
from pathlib import Path
from tests.engines.trainers import make_trainer

trainer = make_trainer(Path(sys.argv[1]) / "theirs", max_steps=4, ddp_backend="gloo")
trainer.add_callback(pilot.PilotCallback(**eval(sys.argv[2])))
try:
    trainer.train()
    sys.stdout.write(f"trained {trainer.state.global_step}\\n")
except Exception as error:
    sys.stdout.write(f"refused {os.environ['RANK']} {str(error).splitlines()[0]}\\n")
torch.distributed.destroy_process_group()  # else torch may abort the end of a process
"""


@pytest.mark.slow
def test_all_of_several_processes_stop_or_go_on(tmp_path: Path) -> None:
    """Two processes: a refusal ends both, a recording that fails in the first ends none."""
    (tmp_path / "train.py").write_text(SEVERAL)
    (tmp_path / "taken").write_text("a file")

    def run(given: str) -> subprocess.CompletedProcess[str]:
        words = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "train.py"]
        return subprocess.run(
            [sys.executable, *words, str(tmp_path), given],
            cwd=tmp_path,
            env={**environment(), "PYTHONPATH": str(Path(__file__).parents[1])},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    for given, why in (
        ("{'verdict': 'gone'}", "gone: has no verdict"),
        ("{'out_dir': 'taken/x'}", "taken/x: records cannot be written here"),
    ):
        refused = run(given)
        assert "trained" not in refused.stdout, refused.stdout
        assert all(f"refused {rank} {why}" in refused.stdout for rank in (0, 1)), refused.stdout
    done = run("{'out_dir': 'records'}")
    assert done.returncode == 0 and done.stdout.count("trained 4") == 2, done.stderr
    steps = (tmp_path / "records/arms/baseline/steps.001.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in steps] == [1, 2, 3, 4]


LIGHT = """
import sys, typing
import pilot
assert "PilotCallback" in dir(pilot)
heavy = {"torch", "transformers", "numpy", "hydra"} & set(sys.modules)
assert not heavy, heavy
help(pilot.PilotCallback)
print(typing.get_type_hints(pilot.PilotCallback.__init__)["verdict"])
"""


def test_importing_pilot_is_light_and_the_callback_is_found() -> None:
    words = [sys.executable, "-c", LIGHT]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Refuses a full run without its GO" in done.stdout and "pathlib" in done.stdout
