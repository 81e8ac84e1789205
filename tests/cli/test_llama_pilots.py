"""Pilots of the bundled fine-tune: what must be GO is GO, what is ruined is NO-GO.

The short ones run always; the whole ones (full warm-up, 128 peak steps) are slow.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, RunPilot

SHORT = (
    "pilot.min_peak_steps=20",
    "pilot.cooldown_steps=8",
    "full_run.warmup_steps=6",
    "pilot.validation_rows=48",
)
COMMON = (
    *("+recipe=llama_ft", "arms=reference"),
    *("tracking=none", "out_dir=out", "launcher.num_threads=1"),
)


def pilot(run: RunPilot, cwd: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, verdict (empty when there is none) and all output of a pilot."""
    done = run(*COMMON, *words, cwd=cwd, timeout=1500)
    path = cwd / "out" / "verdict.json"
    verdict = json.loads(path.read_text()) if path.is_file() else {}
    return done.returncode, verdict, done.stdout + done.stderr


def gates(verdict: dict[str, Any]) -> dict[str, str]:
    """The status of each gate."""
    return {gate["name"]: gate["status"] for gate in verdict["gates"]}


def bundled_rows(limit: int) -> list[dict[str, str]]:
    """Rows of the bundled training pairs."""
    path = ROOT / "recipes" / "assets" / "pairs" / "train.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for _, line in zip(range(limit), file, strict=False)]


def write_rows(path: Path, rows: list[dict[str, str]]) -> Path:
    """Rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_short_default_is_go(tmp_path: Path, run_pilot: RunPilot) -> None:
    code, verdict, text = pilot(run_pilot, tmp_path, *SHORT, "optim.learning_rate=0.001")
    assert code == 0 and verdict["verdict"] == "GO", text
    assert gates(verdict)["progress"] == "pass"


@pytest.mark.slow
def test_short_sgd_without_clip_is_no_go(tmp_path: Path, run_pilot: RunPilot) -> None:
    words = ("optim=sgd", "optim.learning_rate=1.0", "optim.max_grad_norm=null")
    code, verdict, text = pilot(run_pilot, tmp_path, *SHORT, *words)
    assert code == 3 and verdict["verdict"] == "NO-GO", text
    failed = {name for name, status in gates(verdict).items() if status == "fail"}
    assert failed & {"finite", "validation", "progress"}, text


def test_a_row_longer_than_the_model_has_positions(tmp_path: Path, run_pilot: RunPilot) -> None:
    rows = [row for row in bundled_rows(300) if len(row["output"]) < 120][:80]
    rows[17] = {**rows[17], "output": "a long answer, word by word " * 120}
    data = write_rows(tmp_path / "mine.jsonl", rows)
    words = (
        f"recipe.data={data}",
        "recipe.truncate=false",
        "full_run.epochs=5",
        "batch.micro_batch_size=2",
    )
    code, verdict, text = pilot(run_pilot, tmp_path, *SHORT, *words)
    assert code == 3, text
    assert gates(verdict)["labels"] == "fail"
    assert "longer than the model's 512 positions" in text


BROKEN = {
    "empty": ("", "empty"),
    "no answer": ('{"instruction": "a"}\n', "answer"),
    "invalid json": (
        '{"instruction": "a", "output": "b"}\n{"instruction": "a", "outp\n',
        "mine.jsonl:2",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_data_is_a_usage_error(tmp_path: Path, run_pilot: RunPilot, kind: str) -> None:
    text, expected = BROKEN[kind]
    path = tmp_path / "mine.jsonl"
    path.write_text(text)
    code, verdict, output = pilot(run_pilot, tmp_path, f"recipe.data={path}")
    assert code == 2 and not verdict, output
    assert expected in output and "remedy" in output
    assert "Traceback" not in output


def test_a_model_folder_without_weights(tmp_path: Path, run_pilot: RunPilot) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    source = ROOT / "recipes" / "assets" / "llama_1m"
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    code, _, text = pilot(run_pilot, tmp_path, f"recipe.model={folder}")
    assert code == 2 and "weights" in text and "Traceback" not in text, text


GO = {
    **{f"seed {n}": (f"pilot.seed={n}", f"pilot.data_seed={n}") for n in range(6)},
    "lora": ("recipe.lora={rank: 8, alpha: 16}",),
    "bf16": ("precision=bf16",),
    "accumulate 4": ("batch.micro_batch_size=2", "batch.grad_accum_steps=4"),
    "batch 2": ("batch.micro_batch_size=2",),
    "batch 16": ("batch.micro_batch_size=16",),
    "linear": ("full_run.schedule=linear",),
    "wsd": ("full_run.schedule=wsd",),
    "constant": ("full_run.schedule=constant",),
    "sgd with clip": ("optim=sgd", "optim.learning_rate=1.0", "optim.max_grad_norm=1.0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", GO)
def test_healthy_runs_are_go(tmp_path: Path, run_pilot: RunPilot, kind: str) -> None:
    code, verdict, text = pilot(run_pilot, tmp_path, *GO[kind])
    assert code == 0 and verdict["verdict"] == "GO", text


NO_GO = {
    "sgd without clip": ("optim=sgd", "optim.learning_rate=1.0", "optim.max_grad_norm=null"),
    "adamw x10": ("optim.learning_rate=0.01",),
    "adamw x30": ("optim.learning_rate=0.03",),
    "adamw x100": ("optim.learning_rate=0.1",),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", NO_GO)
def test_ruined_runs_are_no_go(tmp_path: Path, run_pilot: RunPilot, kind: str) -> None:
    code, verdict, text = pilot(run_pilot, tmp_path, *NO_GO[kind])
    assert code == 3 and verdict["verdict"] == "NO-GO", text
    failed = {name for name, status in gates(verdict).items() if status == "fail"}
    assert failed & {"finite", "validation", "progress"}, text
