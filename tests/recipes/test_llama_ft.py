from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pilot.cli.settings import check_recipe
from pilot.data.audit import IGNORED, audit_rows
from pilot.errors import DataError, ModelFolderError
from pilot.recipe import RecipeHandle, load_module

FILE = Path(__file__).resolve().parents[2] / "recipes" / "llama_ft.py"
llama_ft = load_module(FILE)
COMMON = {"name": "llama_ft", "module": "llama_ft", "objective": "lm"}


def write(path: Path, num_rows: int) -> Path:
    rows = [
        {
            "instruction": f"What is {i}?",
            "output": f"The answer {i} " * (1 + i % 5),
            "source": "ab"[i % 2],
        }
        for i in range(num_rows)
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def settings(tiny_folder: Path, tmp_path: Path) -> dict[str, Any]:
    data = write(tmp_path / "train.jsonl", 40)
    return {**COMMON, "model": str(tiny_folder), "data": str(data)}


def build(settings: dict[str, Any], sequence_length: int | None = 64, seed: int = 0) -> Any:
    handle = RecipeHandle(
        module_path=FILE, settings=settings, sequence_length=sequence_length, seed=seed
    )
    return handle.build()


def test_facts_and_split(settings: dict[str, Any]) -> None:
    recipe = build(settings)
    assert (len(recipe.train), len(recipe.validation["validation"])) == (36, 4)
    facts = recipe.facts(recipe.train[0])
    example = recipe.train[0]
    assert facts.num_tokens == len(example.input_ids)
    assert facts.num_supervised_tokens == (example.labels != IGNORED).sum()
    assert {recipe.facts(e).source for e in recipe.train} == {"a", "b"}


def test_validation_file(settings: dict[str, Any], tmp_path: Path) -> None:
    held = write(tmp_path / "held.jsonl", 7)
    recipe = build({**settings, "validation_data": str(held)})
    assert len(recipe.train) == 40
    assert {name: len(rows) for name, rows in recipe.validation.items()} == {"validation": 7}
    assert held in llama_ft.input_files({**settings, "validation_data": str(held)})


def test_collate_pads_right(settings: dict[str, Any]) -> None:
    recipe = build(settings)
    rows = sorted(recipe.train, key=lambda e: len(e.input_ids))
    short, long = rows[0], rows[-1]
    batch = recipe.collate([short, long])
    n = len(short.input_ids)
    assert batch["input_ids"].shape == (2, len(long.input_ids))
    assert batch["input_ids"][0, :n].tolist() == short.input_ids.tolist()
    assert set(batch["input_ids"][0, n:].tolist()) == {0}
    assert set(batch["labels"][0, n:].tolist()) == {IGNORED}
    assert batch["attention_mask"].sum(dim=1).tolist() == [n, len(long.input_ids)]
    counts = [recipe.facts(e).num_supervised_tokens for e in (short, long)]
    assert recipe.num_supervised(batch).tolist() == counts


def test_losses_are_those_of_the_library(settings: dict[str, Any]) -> None:
    recipe = build(settings)
    model = recipe.build_model("full").eval()
    batch = recipe.collate(recipe.train[:6])
    with torch.no_grad():
        losses = recipe.losses(model, batch)
        mean = losses.sum() / recipe.num_supervised(batch).sum()
        assert losses.shape == (6,)
        assert mean.item() == pytest.approx(model(**batch).loss.item(), abs=1e-6)
        for row in range(6):
            example = recipe.collate([recipe.train[row]])
            alone = model(**example).loss * recipe.num_supervised(example).sum()
            assert losses[row].item() == pytest.approx(alone.item(), rel=1e-6)


def test_losses_do_not_depend_on_padding(settings: dict[str, Any]) -> None:
    recipe = build(settings)
    model = recipe.build_model("full").double().eval()
    short = min(recipe.train, key=lambda e: len(e.input_ids))
    long = max(recipe.train, key=lambda e: len(e.input_ids))
    with torch.no_grad():
        alone = recipe.losses(model, recipe.collate([short]))
        padded = recipe.losses(model, recipe.collate([short, long]))[:1]
    assert alone.dtype == torch.float64
    assert alone.item() == pytest.approx(padded.item(), rel=1e-12)


def test_a_row_without_labels_has_no_loss_and_no_gradient(settings: dict[str, Any]) -> None:
    recipe = build(settings, sequence_length=4)
    batch = recipe.collate(recipe.train[:2])
    assert recipe.num_supervised(batch).tolist() == [0, 0]
    model = recipe.build_model("full")
    losses = recipe.losses(model, batch)
    losses.sum().backward()
    assert losses.tolist() == [0.0, 0.0]
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)


def test_half_precision_logits_give_fp32_losses(settings: dict[str, Any]) -> None:
    recipe = build(settings)
    model = recipe.build_model("full").bfloat16()
    losses = recipe.losses(model, recipe.collate(recipe.train[:2]))
    assert losses.dtype == torch.float32


def test_rows_that_are_not_cut_are_noticed(settings: dict[str, Any], tmp_path: Path) -> None:
    long = {"instruction": "a", "output": "far too long " * 40}
    data = tmp_path / "long.jsonl"
    data.write_text("\n".join([json.dumps(long)] + data_lines(settings)))
    own = {**settings, "data": str(data), "validation_data": settings["data"]}
    whole, cut = build({**own, "truncate": False}), build(own)
    kwargs = {"vocab_size": 320, "max_positions": 96}
    assert audit_rows("train", whole.train, **kwargs)["too_long"] == [0]
    found = audit_rows("train", cut.train, **kwargs)
    assert (found["num_too_long"], found["longest_tokens"]) == (0, 64)
    assert found["num_bad_input_ids"] == found["num_bad_label_ids"] == found["num_no_labels"] == 0


def data_lines(settings: dict[str, Any]) -> list[str]:
    return Path(settings["data"]).read_text().split("\n")


def test_models_are_built_the_same_each_time(settings: dict[str, Any]) -> None:
    recipe = build(settings)
    state = torch.get_rng_state()
    for scale in ("full", "mini"):
        one, two = (recipe.build_model(scale) for _ in range(2))
        assert all(
            torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True)
        )
        assert torch.isfinite(recipe.losses(one, recipe.collate(recipe.train[:2]))).all()
    assert torch.equal(torch.get_rng_state(), state)


def test_lora_trains_adapters_only(settings: dict[str, Any]) -> None:
    pytest.importorskip("peft")
    lora = {"rank": 2, "alpha": 4, "target_modules": ["q_proj"]}
    recipe = build({**settings, "lora": lora})
    model, again = recipe.build_model("full"), recipe.build_model("full")
    trainable = [name for name, p in model.named_parameters() if p.requires_grad]
    assert len(trainable) == 3 * 2
    assert all(".q_proj.lora_" in name for name in trainable)
    pairs = zip(model.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    plain = build(settings).build_model("full")
    batch = recipe.collate(recipe.train[:2])
    assert torch.allclose(recipe.losses(model, batch), recipe.losses(plain, batch), rtol=1e-6)


def test_settings_that_are_fine(settings: dict[str, Any]) -> None:
    assert check_recipe(settings, FILE) == []
    lora = {"rank": 8, "alpha": 16.0, "dropout": 0.0, "target_modules": None}
    assert check_recipe({**settings, "lora": lora}, FILE) == []


@pytest.mark.parametrize(
    ("change", "key", "rule"),
    [
        ({"model": "meta-llama/Llama-2-7b"}, "model", "it is no folder on this machine"),
        ({"data": "nowhere.jsonl"}, "data", "there is no file at"),
        ({"data": "."}, "data", "there is a folder at"),
        ({"validation_data": "nowhere.jsonl"}, "validation_data", "there is no file at"),
        ({"validation_frac": 0.0}, "validation_frac", "must be in (0, 1)"),
        ({"validation_frac": 1.0}, "validation_frac", "must be in (0, 1)"),
        ({"validation_frac": "a"}, "validation_frac", "number"),
        ({"truncate": 1}, "truncate", "boolean"),
        ({"modle": "x"}, "modle", "no such key"),
        ({"lora": {"rank": 0}}, "lora.rank", "must be at least 1"),
        ({"lora": {"alpha": -1}}, "lora.alpha", "must be above 0"),
        ({"lora": {"dropout": 1.0}}, "lora.dropout", "must be in [0, 1)"),
        ({"lora": {"target_modules": []}}, "lora.target_modules", "must name modules"),
        ({"lora": {"rang": 8}}, "lora.rang", "no such key"),
    ],
)
def test_settings_that_are_wrong(
    settings: dict[str, Any], change: dict[str, Any], key: str, rule: str
) -> None:
    if "lora" in change:
        pytest.importorskip("peft")
    (mistake,) = check_recipe({**settings, **change}, FILE)
    assert mistake.key == f"recipe.{key}"
    assert rule in mistake.rule
    assert mistake.remedy


def test_all_mistakes_at_once(settings: dict[str, Any]) -> None:
    wrong = {"model": "x", "data": "y", "validation_data": "z", "validation_frac": 2.0}
    assert len(check_recipe({**settings, **wrong}, FILE)) == 4


def test_lora_without_peft(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_ft.importlib.util, "find_spec", lambda name: None)
    ((key, _, rule, remedy),) = llama_ft.check_settings({**settings, "lora": {}})
    assert key == "lora"
    assert "not installed" in rule
    assert remedy == "pip install 'pilot-run[lora]'"


def test_broken_input_is_explained(settings: dict[str, Any], tmp_path: Path) -> None:
    few = write(tmp_path / "few.jsonl", 2)
    with pytest.raises(DataError, match="no validation rows can be split off"):
        build({**settings, "data": str(few)})
    with pytest.raises(ModelFolderError):
        build({**settings, "model": str(tmp_path)})


def test_input_files_are_what_is_read(settings: dict[str, Any], tiny_folder: Path) -> None:
    files = llama_ft.input_files(settings)
    assert Path(settings["data"]) in files
    assert tiny_folder / "model.safetensors" in files
    assert tiny_folder / "tokenizer.json" in files
    assert all(path.is_file() for path in files)


BUNDLED = pytest.mark.skipif(
    not (FILE.parent / "assets" / "llama_1m" / "config.json").is_file(),
    reason="the bundled model has not been made yet",
)


@BUNDLED
def test_bundled_recipe() -> None:
    started = time.process_time()
    recipe = build(dict(COMMON), sequence_length=256)
    assert time.process_time() - started < 20  # about 3 s; imports and a busy machine included
    assert len(recipe.train) > 3000
    assert list(recipe.validation) == ["validation", "validation_new_packages"]
    model = recipe.build_model("full")
    limits = {"vocab_size": 2048, "max_positions": 512}
    for name, rows in {"train": recipe.train, **recipe.validation}.items():
        found = audit_rows(name, rows, **limits)
        assert found["num_bad_input_ids"] == found["num_too_long"] == found["num_no_labels"] == 0
    with torch.no_grad():
        batch = recipe.collate(recipe.train[:8])
        mean = recipe.losses(model, batch).sum() / recipe.num_supervised(batch).sum()
    assert 3.0 < mean.item() < np.log(2048)
    assert check_recipe(dict(COMMON), FILE) == []
    assert all(path.is_file() for path in llama_ft.input_files(COMMON))
