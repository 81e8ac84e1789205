"""Models and tokenizers from local folders: never from the network, never with their own code.

``problems_of`` is quick and needs no torch; the loaders explain whatever goes wrong as a
``ModelFolderError``.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilot.errors import ModelFolderError, PilotError

if TYPE_CHECKING:
    import torch

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_READ = ("*.json", "*.model", "*.txt", "*.jinja", "chat_templates/*.jinja")
_LFS = b"version https://git-lfs"
_MINI_LAYERS, _MINI_HEADS, _MINI_WIDTH = 2, 4, 64


def stay_offline() -> None:
    """Forbid the Hugging Face libraries to use the network; call it before they are imported."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"


def problem_of(folder: Path) -> tuple[str, str] | None:
    """What the folder of a causal language model lacks, and the remedy; None: nothing seen.

    Looks for ``config.json`` and weights, and for weights that are Git LFS pointers; opens no
    weights file beyond its first bytes.
    """
    save = "give a folder that save_pretrained(...) wrote: config.json, weights, tokenizer files"
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "is no folder on this machine"
        return what, "nothing is downloaded: fetch the model first, then give its folder"
    if not (folder / "config.json").is_file():
        return "has no config.json", save
    files = weight_files(folder)
    if not files:
        return f"has no weights ({' or '.join(WEIGHTS)})", save
    for file in files:
        with file.open("rb") as opened:
            if opened.read(len(_LFS)) == _LFS:
                return f"{file.name} is a Git LFS pointer, not weights", "run: git lfs pull"
    return None


def weight_files(folder: Path) -> list[Path]:
    """The weights that are loaded: safetensors where there are any, else ``.bin``."""
    for pattern in WEIGHTS:
        if found := sorted(folder.glob(pattern)):
            return found
    return []


def files_of(folder: Path) -> list[Path]:
    """All files that loading the model and its tokenizer may read, for the fingerprint."""
    found = {path for pattern in _READ for path in folder.glob(pattern) if path.is_file()}
    return sorted(found | set(weight_files(folder)))


def load_tokenizer(folder: Path) -> Any:
    """The folder's tokenizer; it must be a fast one and have a chat template.

    Raises:
        ModelFolderError: it cannot be loaded, or lacks one of the two.
    """
    stay_offline()
    try:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        remedy = "save the model's tokenizer into the folder (tokenizer.json)"
        raise _unusable(folder, "its tokenizer cannot be loaded", error, remedy) from error
    if not tokenizer.is_fast:
        remedy = "convert it: AutoTokenizer.from_pretrained(...).save_pretrained(folder)"
        raise ModelFolderError(folder, "its tokenizer has no tokenizer.json", remedy=remedy)
    if not tokenizer.chat_template:
        remedy = "set tokenizer.chat_template to the format of your run and save the tokenizer"
        raise ModelFolderError(folder, "its tokenizer has no chat template", remedy=remedy)
    return tokenizer


def load_causal_lm(folder: Path) -> torch.nn.Module:
    """The model with its weights, in fp32 on the CPU, without its cache.

    Raises:
        ModelFolderError: no causal language model, damaged or incomplete weights, or a model that
            needs code of its own.
    """
    stay_offline()
    if problem := problem_of(folder):
        raise ModelFolderError(folder, problem[0], remedy=problem[1])
    try:
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # it would fill an arm's log
        model, info = AutoModelForCausalLM.from_pretrained(
            str(folder),
            local_files_only=True,
            trust_remote_code=False,
            weights_only=True,
            dtype=torch.float32,
            output_loading_info=True,
        )
    except Exception as error:
        remedy = "is it a causal language model, complete, and of a class that transformers has?"
        raise _unusable(folder, "the model cannot be loaded", error, remedy) from error
    if missing := sorted(info["missing_keys"]):
        what = f"its weights lack {len(missing)} tensors of a causal language model: {missing[0]}"
        remedy = "they would start at random: give the folder of the complete model"
        raise ModelFolderError(folder, what, remedy=remedy)
    if unexpected := sorted(k for k in info["unexpected_keys"] if not k.endswith("inv_freq")):
        what = f"its weights hold {len(unexpected)} tensors that config.json has no place for"
        remedy = "config.json and weights belong to different models: give the matching pair"
        raise ModelFolderError(folder, f"{what}: {unexpected[0]}", remedy=remedy)
    model.config.use_cache = False
    found: torch.nn.Module = model
    return found


def mini_causal_lm(folder: Path, *, seed: int) -> torch.nn.Module:
    """The same classes with 2 layers and a width of 64, random weights from ``seed``, in fp32.

    The random state of the process is left as it was.

    Raises:
        ModelFolderError: the configuration is not one of a causal language model.
    """
    stay_offline()
    try:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        config = AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = AutoModelForCausalLM.from_config(_mini(config), trust_remote_code=False)
    except Exception as error:
        remedy = "the classes of this model cannot be built small"
        raise _unusable(folder, "no mini model can be made", error, remedy) from error
    model.config.use_cache = False
    found: torch.nn.Module = model.float()
    return found


def _mini(config: Any) -> Any:
    mini = copy.deepcopy(config)
    heads = _MINI_HEADS
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    grouped = kv_heads < getattr(config, "num_attention_heads", kv_heads)
    sizes = {
        "num_hidden_layers": _MINI_LAYERS,
        "hidden_size": _MINI_WIDTH,
        "intermediate_size": 2 * _MINI_WIDTH,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2 if grouped else heads,
        "head_dim": _MINI_WIDTH // heads,
    }
    for key, value in sizes.items():
        if getattr(config, key, None) is not None:
            setattr(mini, key, value)
    if getattr(config, "layer_types", None):
        mini.layer_types = list(config.layer_types)[:_MINI_LAYERS]
    mini.dtype = "float32"
    return mini


def _unusable(folder: Path, what: str, error: Exception, remedy: str) -> PilotError:
    if isinstance(error, PilotError):
        return error
    first = str(error).strip().split("\n", 1)[0][:300]
    return ModelFolderError(folder, f"{what}: {type(error).__name__}: {first}", remedy=remedy)
