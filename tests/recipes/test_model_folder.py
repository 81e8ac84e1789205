from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from pilot.errors import ModelFolderError
from pilot.model_folder import (
    files_of,
    load_causal_lm,
    load_tokenizer,
    mini_causal_lm,
    problem_of,
    weight_files,
)


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def refused(folder: Path) -> str:
    with pytest.raises(ModelFolderError) as caught:
        load_causal_lm(folder)
    return str(caught.value)


def test_a_good_folder(folder: Path) -> None:
    assert problem_of(folder) is None
    model = load_causal_lm(folder)
    assert type(model).__name__ == "LlamaForCausalLM"
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.config.use_cache is False
    names = [path.name for path in files_of(folder)]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(names)


def test_what_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    assert "no folder on this machine" in str(problem_of(tmp_path / "org" / "name"))
    assert "is a file" in str(problem_of(folder / "config.json"))
    (folder / "model.safetensors").unlink()
    assert "has no weights" in refused(folder)
    (folder / "config.json").unlink()
    assert "has no config.json" in refused(folder)


def test_git_lfs_pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "Git LFS pointer" in refused(folder)


@pytest.mark.parametrize("keep", [0, 4, 500, -100])
def test_damaged_weights(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    assert "the model cannot be loaded: " in refused(folder)


def test_weights_of_another_shape(folder: Path) -> None:
    edit(folder / "config.json", vocab_size=111)
    assert "the model cannot be loaded: " in refused(folder)


def test_weights_that_lack_tensors(folder: Path) -> None:
    edit(folder / "config.json", num_hidden_layers=4)
    assert "lack 9 tensors of a causal language model: model.layers.3." in refused(folder)


def test_a_model_without_its_head(folder: Path) -> None:
    base = load_causal_lm(folder).model
    shutil.rmtree(folder)
    base.save_pretrained(folder)
    assert "lack 1 tensors of a causal language model: lm_head.weight" in refused(folder)


def test_not_a_causal_language_model(folder: Path) -> None:
    edit(folder / "config.json", model_type="t5", architectures=["T5ForConditionalGeneration"])
    assert "the model cannot be loaded: " in refused(folder)
    (folder / "config.json").write_text("{")
    assert "the model cannot be loaded: " in refused(folder)


def test_code_in_the_folder_is_never_run(folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    code = f"open({str(trace)!r}, 'w').close()\nclass C: pass\n"
    (folder / "mine.py").write_text(code)
    mapping = {"AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.C"}
    edit(folder / "config.json", model_type="mine", auto_map=mapping)
    assert "the model cannot be loaded: " in refused(folder)
    with pytest.raises(ModelFolderError):
        mini_causal_lm(folder, seed=0)
    assert not trace.exists()


def test_pickled_weights_are_read_without_running_them(folder: Path, tmp_path: Path) -> None:
    state = load_causal_lm(folder).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    assert [path.name for path in weight_files(folder)] == ["pytorch_model.bin"]
    loaded = load_causal_lm(folder).state_dict()
    assert all(torch.equal(loaded[key], state[key]) for key in state)
    trace = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> Any:
            return open, (str(trace), "w")

    torch.save({**state, "evil": Evil()}, folder / "pytorch_model.bin")
    assert "the model cannot be loaded: " in refused(folder)
    assert not trace.exists()


def test_mini_has_the_same_classes_and_its_own_seed(folder: Path) -> None:
    state = torch.get_rng_state()
    one, two, other = (mini_causal_lm(folder, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert type(one).__name__ == "LlamaForCausalLM"
    assert one.config.num_hidden_layers == 2
    assert one.config.hidden_size == 64
    assert (one.config.num_attention_heads, one.config.num_key_value_heads) == (4, 2)
    assert one.config.vocab_size == 320
    same = zip(one.parameters(), two.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)
    assert not torch.equal(one.lm_head.weight, other.lm_head.weight)
    assert one(input_ids=torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 320)


def test_tokenizers(folder: Path) -> None:
    assert load_tokenizer(folder).is_fast
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ModelFolderError, match="no chat template"):
        load_tokenizer(folder)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ModelFolderError, match="tokenizer cannot be loaded"):
        load_tokenizer(folder)
