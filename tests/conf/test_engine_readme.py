"""conf/engine/README.md says what the installed packages and pilot's own code say."""

from __future__ import annotations

import dataclasses
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import TrainingArguments

from pilot.engines.hf.arguments import ARGUMENTS
from pilot.engines.hf.setting import QUIET
from pilot.engines.native import NativeEngine
from pilot.engines.transformers import TransformersEngine
from tests.conftest import ROOT
from tests.engines.trainers import HELD, TRAIN, collate, make_model

PAGE = (ROOT / "conf" / "engine" / "README.md").read_text(encoding="utf-8")
CELL = re.compile(r"^`(?P<name>[\w.]+)` (?P<value>\S+)")


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def table(text: str, number: int = 0) -> list[list[str]]:
    """The rows of a Markdown table, its head first."""
    found = re.findall(r"((?:^\|.*\n)+)", text, re.M)[number]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines()]
    return [rows[0], *rows[2:]]


def plain(value: Any) -> str:
    return str(getattr(value, "value", value))


ROWS = table(section("Our keys in their words"))


@pytest.mark.parametrize("column", [1, 2, 3])
def test_names_and_defaults_are_those_of_the_installed_packages(
    column: int, tmp_path: Path
) -> None:
    kind: Any = TrainingArguments
    if column > 1:
        trl = pytest.importorskip("trl")
        kind = (trl.SFTConfig, trl.DPOConfig)[column - 2]
    assert kind.__name__ in ROWS[0][column]
    made = kind(output_dir=str(tmp_path), use_cpu=True)
    names = {field.name for field in dataclasses.fields(kind)}
    for row in ROWS[1:]:
        if row[column] == "-":
            assert "max_length" not in names
            continue
        cell = CELL.match(row[column])
        assert cell, row[column]
        assert cell["name"] in names
        assert cell["value"] == plain(getattr(made, cell["name"])), row


def test_our_keys_and_defaults_are_those_of_conf() -> None:
    tree = yaml.safe_load((ROOT / "conf" / "config.yaml").read_text())
    tree["optim"] = yaml.safe_load((ROOT / "conf" / "optim" / "adamw.yaml").read_text())
    for row in ROWS[1:]:
        cell = CELL.match(row[0])
        assert cell, row[0]
        value: Any = tree
        for part in cell["name"].split("."):
            value = value[part]
        said = yaml.safe_load(cell["value"])
        same = float(said) == float(value) if isinstance(value, float) else said == value
        assert same, row


def test_every_key_that_is_set_over_is_mapped() -> None:
    said = {CELL.match(r[0])["name"]: CELL.match(r[1]) for r in ROWS[1:]}  # type: ignore[index]
    for key, name in ARGUMENTS.items():
        cell = said[key]
        assert cell and cell["name"] == name


def test_what_is_set_over_is_all_that_the_page_names() -> None:
    configured, quiet = section("What `engine=transformers` sets over").split("\n* ")[1:]
    named = re.findall(r"`(\w+)`", configured.split("(")[0])
    assert named == sorted(ARGUMENTS.values())
    assert re.findall(r"`(\w+)`", quiet) == sorted({*QUIET, "output_dir"})


def test_the_traps_are_true(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    from transformers import Trainer

    for text in ("warmup_ratio", "logging_nan_inf_filter", "eval_strategy", "save"):
        assert text in section("Traps")
    hf = TrainingArguments(str(tmp_path), use_cpu=True)
    assert not hasattr(hf, "warmup_ratio") and hf.logging_nan_inf_filter
    assert TrainingArguments(str(tmp_path), warmup_steps=0.1).get_warmup_steps(200) == 20
    assert plain(hf.eval_strategy) == "no" and hf.save_steps == 500
    assert plain(hf.save_strategy) == "steps"
    for kind in (trl.SFTConfig, trl.DPOConfig):
        made = kind(str(tmp_path), use_cpu=True)
        assert made.bf16 and made.gradient_checkpointing
    assert trl.DPOConfig(str(tmp_path), use_cpu=True).disable_dropout
    off = TrainingArguments(str(tmp_path), use_cpu=True, max_steps=1, report_to="none")
    off.max_grad_norm = None
    with pytest.raises(TypeError):  # null crashes a Trainer
        Trainer(make_model(), off, data_collator=collate, train_dataset=TRAIN).train()


def test_what_engines_can_measure_is_what_they_declare() -> None:
    rows = {row[0]: row[1:] for row in table(section("What each can measure"))[1:]}
    for column, engine in enumerate((NativeEngine, TransformersEngine)):
        can = engine.capabilities
        said = {
            "row ids": can.reports_row_ids,
            "gradient norm before clipping, clip coefficient": can.reports_pre_clip_norm,
            "exact states, forks, resume": can.can_snapshot and can.can_replay,
            "cool-down, arms, remedy, a GO": can.can_branch,
            "several processes": can.max_world_size != 1,
        }
        for name, value in said.items():
            assert rows[name][column].startswith("yes" if value else "no"), (name, engine)


def test_the_script_of_the_page_is_refused_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pilot.callback import PilotCallback
    from pilot.errors import FolderError

    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    arguments = TrainingArguments(
        str(tmp_path / "theirs"), use_cpu=True, report_to="none", max_steps=4, disable_tqdm=True
    )
    script = types.ModuleType("train")
    values = {"model": make_model(), "arguments": arguments, "collate": collate}
    vars(script).update(values, train=TRAIN, held_out=HELD)
    monkeypatch.setitem(sys.modules, "train", script)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "train.py", "exec"), vars(script))
    trainer = script.build_trainer()
    with pytest.raises(FolderError, match="pilot_out: has no verdict"):
        trainer.train()
    assert trainer.state.global_step == 0 and not Path("records").exists()
    trainer.remove_callback(PilotCallback)
    trainer.add_callback(PilotCallback("records"))
    trainer.train()
    assert Path("records/arms/baseline/outcome.json").is_file()
