"""``PilotCallback(verdict=DIR)``: a full run starts only with a GO that was made for it."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pilot
from pilot.engines.hf.digests import digests
from pilot.engines.hf.run_facts import run_facts
from pilot.errors import ExitCode, FolderError, FullRunRefused, UsageError
from pilot.fingerprint import bound_sets, make_fingerprint
from pilot.folder import read_json
from pilot.jsonl import write_json
from tests.engines.trainers import make_rows, make_trainer
from tests.trees import config_tree

ARGUMENTS: dict[str, Any] = {"max_steps": 6, "logging_steps": 2}


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a pilot's survey notes of the Trainer: after its loop has made the optimizer."""
    trainer = make_trainer(tmp_path_factory.mktemp("surveyed"), **ARGUMENTS)
    trainer.train()
    found = run_facts(trainer, trainer.state.max_steps)
    assert found["optimizer"] == "AdamW" and len(found["learning_rates"]) == 6
    return found


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The loaded module that builds the Trainer."""
    path = tmp_path / "their_train.py"
    path.write_text("x = 1\n")
    module = types.ModuleType("their_train")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "their_train", module)
    return path


@pytest.fixture
def go(tmp_path: Path, script: Path, facts: dict[str, Any]) -> Path:
    """The folder of a pilot that said GO."""
    root = tmp_path / "out"
    root.mkdir()
    sets = bound_sets(digests(make_trainer(tmp_path / "piloted", **ARGUMENTS)))
    made = make_fingerprint(config_tree(), script, [], world_size=1, trainer=facts, data_sets=sets)
    write_json(root / "fingerprint.json", made)
    write_json(root / "start.json", {"module_path": str(script), "words": ["+recipe=mine"]})
    say(root, "GO")
    return root


def say(root: Path, word: str, **more: Any) -> None:
    made = read_json(root / "fingerprint.json")
    write_json(root / "verdict.json", {"verdict": word, "fingerprint": made, **more})


def change(root: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """The pilot's fingerprint, edited; the verdict carries the same one."""
    made = read_json(root / "fingerprint.json")
    edit(made)
    write_json(root / "fingerprint.json", made)
    say(root, "GO")


def start(folder: Path, verdict: Path, *, allow: Any = (), **arguments: Any) -> Any:
    """The full run, from its first step."""
    trainer = make_trainer(folder / "theirs", **{**ARGUMENTS, **arguments})
    trainer.add_callback(pilot.PilotCallback(verdict=verdict, allow=allow))
    trainer.train()
    return trainer


def refused(folder: Path, verdict: Path, **arguments: Any) -> list[str]:
    """The lines in which the run differs from the pilot's; nothing was trained."""
    with pytest.raises(FullRunRefused) as caught:
        start(folder, verdict, **arguments)
    assert caught.value.exit_code is ExitCode.INCONCLUSIVE
    head, count, *rest = str(caught.value).split("\n")
    assert head.endswith(f"the verdict in {verdict} is GO")
    lines = [line[2:] for line in rest if not line.startswith("    ")]
    assert count.endswith(f": {len(lines)}")
    return lines


def test_the_piloted_run_starts_and_writes_nothing(tmp_path: Path, go: Path) -> None:
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert start(tmp_path, go).state.global_step == 6
    theirs = {path.name for path in (tmp_path / "theirs").rglob("*")} | {"theirs"}
    assert sorted({path.name for path in tmp_path.rglob("*")} - theirs) == before


def test_the_verdict_s_own_file_names_its_folder(tmp_path: Path, go: Path) -> None:
    assert start(tmp_path, go / "verdict.json").state.global_step == 6


def test_what_a_full_run_does_beside_training_is_its_own(tmp_path: Path, go: Path) -> None:
    trained = start(
        tmp_path,
        go,
        save_strategy="steps",
        save_steps=3,
        eval_strategy="steps",
        eval_steps=3,
        logging_steps=1,
        run_name="full",
        per_device_eval_batch_size=2,
        load_best_model_at_end=True,
        dataloader_num_workers=0,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
    )
    assert trained.state.global_step == 6


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            {
                "learning_rate": 2e-2,
                "seed": 8,
                "weight_decay": 0.1,
                "adam_beta2": 0.95,
                "max_grad_norm": 0.0,
                "bf16": True,
                "label_smoothing_factor": 0.1,
                "gradient_accumulation_steps": 2,
            },
            [
                "adam_beta2: 0.999 -> 0.95",
                "bf16: false -> true",
                "data_seed: 7 -> 8",
                "gradient_accumulation_steps: 1 -> 2",
                "label_smoothing_factor: 0.0 -> 0.1",
                "learning_rate: 0.01 -> 0.02",
                "max_grad_norm: 1.0 -> 0.0",
                "optimizer_groups:",
                "seed: 7 -> 8",
                "weight_decay: 0.0 -> 0.1",
                "learning rate of step 2:",
            ],
        ),
        ({"warmup_steps": 2, "data_seed": 8}, ["data_seed: 7 -> 8", "learning rate of step 2:"]),
        ({"lr_scheduler_type": "linear"}, ["lr_scheduler_type:", "learning rate of step 5:"]),
        (
            {"max_steps": 7, "per_device_train_batch_size": 2},
            ["max_steps: 6 -> 7", "per_device_train_batch_size: 4 -> 2", "rows_per_device: 4 -> 2"],
        ),
        (
            {"lora": True, "train": make_rows(30), "optim": "sgd"},
            [
                "model:",
                "num_parameters:",
                "num_train_rows: 32 -> 30",
                "num_trainable_parameters:",
                "optim:",
                'optimizer: "AdamW" -> "SGD"',
                "optimizer_groups:",
            ],
        ),
    ],
    ids=["numbers", "warm-up", "schedule", "length", "model"],
)
def test_a_changed_run_is_refused(
    arguments: dict[str, Any], expected: list[str], tmp_path: Path, go: Path
) -> None:
    found = refused(tmp_path, go, **arguments)
    lines = [line for line in found if not line.startswith("data train_dataset: ")]
    assert (len(lines) < len(found)) is ("train" in arguments)
    assert len(lines) == len(expected), lines
    for line, text in zip(lines, expected, strict=True):
        assert line.startswith(f"trainer {text}")


def test_all_differences_are_told_at_once_and_how_to_go_on(
    tmp_path: Path, go: Path, script: Path
) -> None:
    script.write_text("x = 2\n")
    change(go, lambda made: made["packages"].update(torch="1.0"))
    with pytest.raises(FullRunRefused) as caught:
        start(tmp_path, go, seed=9)
    text = str(caught.value)
    for part in ("code their_train.py: was changed", "packages torch", "trainer seed: 7 -> 9"):
        assert part in text
    assert "or pilot this one: python -m pilot +recipe=mine" in text and "allow" not in text


def test_code_and_packages_can_be_answered_for(tmp_path: Path, go: Path, script: Path) -> None:
    script.write_text("x = 2\n")
    change(go, lambda made: made["packages"].update(torch="1.0"))
    with pytest.raises(FullRunRefused, match=r"allow=\['code', 'packages'\]"):
        start(tmp_path, go)
    with pytest.raises(FullRunRefused, match="differs .*: 1\n  packages torch"):
        start(tmp_path, go, allow="code")
    with pytest.warns(UserWarning, match="was made for other code and packages"):
        start(tmp_path, go, allow=["code", "packages"])


def test_another_version_of_pilot_changes_nothing_in_their_run(tmp_path: Path, go: Path) -> None:
    change(go, lambda made: made["code"].update(pilot_version="0.0.1", pilot_sha256="0"))
    assert start(tmp_path, go).state.global_step == 6


def test_code_that_is_not_loaded_here_was_not_piloted(
    tmp_path: Path, go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "their_train")
    (line,) = refused(tmp_path, go)
    assert line.startswith("code their_train.py: not loaded here")


def test_a_module_that_the_script_imports_is_its_code(
    tmp_path: Path, go: Path, script: Path
) -> None:
    base = script.parent / "base.py"
    base.write_text("y = 1  # one\n")
    made = make_fingerprint(config_tree(), script, [], world_size=1, imported=["base.py"])
    change(go, lambda found: found.update(code=made["code"]))
    base.write_text("y = 1\n")
    assert start(tmp_path, go).state.global_step == 6
    base.write_text("y = 2\n")
    (line,) = refused(tmp_path, go)
    assert line.startswith("code base.py: was changed")
    base.unlink()
    assert refused(tmp_path, go) == ["code base.py: is not there any more"]


def test_the_command_line_that_the_pilot_gave_is_compared(
    tmp_path: Path, go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--kl", "0.5", "--api_key", "abcdef"])
    assert start(tmp_path, go).state.global_step == 6  # the pilot gave none: nothing to compare
    change(go, lambda made: made["config"].update({"recipe.argv": ["--kl", 0.1]}))
    assert refused(tmp_path, go) == [
        "trainer command line: --kl 0.1 -> --kl 0.5 --api_key <hidden>"
    ]
    monkeypatch.setattr(sys, "argv", ["train.py", "--kl", "0.1"])
    assert start(tmp_path, go).state.global_step == 6


def test_a_verdict_of_an_older_version_says_so(tmp_path: Path, go: Path) -> None:
    change(go, lambda made: made.update(code={"recipe_sha256": "1", "commit": "2"}))
    lines = refused(tmp_path, go)
    assert any("an older version of pilot noted it otherwise" in line for line in lines)


def test_the_newest_verdict_of_a_folder_of_pilots(tmp_path: Path, go: Path) -> None:
    several = tmp_path / "outputs"
    several.mkdir()
    with pytest.raises(FolderError, match="outputs: has no verdict"):
        start(tmp_path, several)
    go.rename(several / "2026-01-01")
    assert start(tmp_path, several).state.global_step == 6
    (several / "2026-01-02").mkdir()  # of a pilot that has not ended
    assert start(tmp_path, several).state.global_step == 6
    newer = several / "2026-01-03"
    newer.mkdir()
    for name in ("fingerprint.json", "start.json"):
        (newer / name).write_bytes((several / "2026-01-01" / name).read_bytes())
    say(newer, "NO-GO")
    with pytest.raises(FullRunRefused, match="the verdict in .*2026-01-03 is NO-GO"):
        start(tmp_path, several)


def test_a_checkout_elsewhere_is_the_same_code(
    tmp_path: Path, go: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "moved").mkdir()
    script.rename(tmp_path / "moved" / script.name)
    monkeypatch.setattr(
        sys.modules["their_train"], "__file__", str(tmp_path / "moved" / script.name)
    )
    assert start(tmp_path, go).state.global_step == 6


@pytest.mark.parametrize(
    ("word", "code"),
    [("NO-GO", ExitCode.NO_GO), ("INCONCLUSIVE", ExitCode.INCONCLUSIVE), ("go", 4), ("", 4)],
)
def test_only_go_is_go(word: str, code: int, tmp_path: Path, go: Path) -> None:
    say(go, word, why="progress: 0.4 of 0.6667", next="python -m pilot resume DIR")
    with pytest.raises(FullRunRefused) as caught:
        start(tmp_path, go)
    assert caught.value.exit_code == code
    assert f"is {word}\n    why:    progress: 0.4" in str(caught.value)
    assert f"remedy: python -m pilot resume {go}" in str(caught.value)


@pytest.mark.parametrize("name", ["verdict.json", "fingerprint.json"])
def test_without_a_verdict_nothing_starts(name: str, tmp_path: Path, go: Path) -> None:
    (go / name).unlink()
    with pytest.raises(FolderError, match=f"has no verdict: {name} is missing"):
        start(tmp_path, go)
    with pytest.raises(FolderError, match="give the out_dir of a pilot that has ended"):
        start(tmp_path, tmp_path / "gone")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"verdict": "GO", "fingerprint": 3}'])
def test_a_damaged_verdict_is_none(text: str, tmp_path: Path, go: Path) -> None:
    (go / "verdict.json").write_text(text)
    with pytest.raises(FolderError, match="damaged|is not a JSON object"):
        start(tmp_path, go)


def test_a_verdict_of_another_fingerprint_is_none(tmp_path: Path, go: Path) -> None:
    write_json(go / "verdict.json", {"verdict": "GO", "fingerprint": {"hash": "000000000000"}})
    (line,) = refused(tmp_path, go)
    assert line.startswith("verdict.json is of 000000000000")


def test_a_pilot_of_another_engine_says_nothing_of_a_trainer(
    tmp_path: Path, go: Path, script: Path
) -> None:
    sets = bound_sets(digests(make_trainer(tmp_path / "piloted", **ARGUMENTS)))
    made = make_fingerprint(config_tree(), script, [], world_size=1, data_sets=sets)
    write_json(go / "fingerprint.json", made)
    say(go, "GO")
    assert refused(tmp_path, go) == [
        "trainer: the pilot trained no Trainer, so there is nothing to compare with"
    ]


def test_a_resumed_run_and_one_given_in_epochs(tmp_path: Path, go: Path, script: Path) -> None:
    arguments = {"save_strategy": "steps", "save_steps": 2}
    start(tmp_path, go, **arguments)
    again = make_trainer(tmp_path / "theirs", **{**ARGUMENTS, **arguments})
    again.add_callback(pilot.PilotCallback(verdict=go))
    again.train(resume_from_checkpoint=str(tmp_path / "theirs" / "checkpoint-4"))
    assert again.state.global_step == 6
    epochs = {"max_steps": -1, "num_train_epochs": 1}
    (line, *_) = [line for line in refused(tmp_path, go, **epochs) if "max_steps" in line]
    assert line == "trainer max_steps: 6 -> 8"
    change(go, lambda made: made["config"].update({"full_run.start_step": 5}))
    assert refused(tmp_path, go)[-1].startswith("trainer first step: 6 -> 1")


def test_records_and_verdict_together(tmp_path: Path, go: Path) -> None:
    for rate, steps in ((1e-2, 6), (3e-2, None)):
        records = tmp_path / f"records_{rate}"
        trainer = make_trainer(tmp_path / "theirs", **{**ARGUMENTS, "learning_rate": rate})
        trainer.add_callback(pilot.PilotCallback(records, verdict=go, validation_rows=0))
        if steps:
            trainer.train()
            outcome = read_json(records / "arms/baseline/outcome.json")
            assert outcome["status"] == "completed" and outcome["last_step"] == steps
        else:
            with pytest.raises(FullRunRefused):
                trainer.train()
            assert not records.exists()


def test_its_own_records_are_no_verdict(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path / "theirs", **ARGUMENTS)
    trainer.add_callback(pilot.PilotCallback(tmp_path / "records", validation_rows=0))
    trainer.train()
    with pytest.raises(FolderError, match=r"records of pilot.PilotCallback"):
        start(tmp_path, tmp_path / "records")


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({}, ["give out_dir"]),
        ({"out_dir": "x", "validation_rows": 7}, ["validation_rows = 7"]),
        ({"out_dir": "x", "validation_rows": None}, ["validation_rows = None"]),
        ({"out_dir": "x", "validation_rows": -1}, ["validation_rows = -1"]),
        ({"verdict": "x", "allow": ["config"]}, ["allow = ['config']"]),
        ({"verdict": "x", "allow": "data"}, ["allow = ['data']"]),
        ({"out_dir": "x", "allow": "code"}, ["give verdict"]),
        ({"validation_rows": True, "allow": "x"}, ["give out_dir", "= True", "allow = ['x']"]),
    ],
    ids=str,
)
def test_what_is_given_is_checked_at_once(given: dict[str, Any], texts: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        pilot.PilotCallback(**given)
    for text in texts:
        assert text in str(caught.value)


def test_other_rows_are_refused(tmp_path: Path, go: Path) -> None:
    lines = refused(tmp_path, go, train=make_rows(32, seed=9))
    assert any(line.startswith("data train_dataset: ") for line in lines)
