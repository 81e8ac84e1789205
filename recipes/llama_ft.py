"""Fine-tune a causal language model on instruction pairs; without settings a bundled tiny Llama.

Everything is read from this machine: the model's folder, the data. The loss is the next-token cross
entropy of the answers, their end-of-turn token included; prompts are not supervised.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilot.data.audit import IGNORED
from pilot.data.chat import Example, encode
from pilot.data.formats import read_conversations
from pilot.data.rows import Conversation
from pilot.data.split import split_by_answer
from pilot.errors import MissingExtra
from pilot.model_folder import (
    files_of,
    load_causal_lm,
    load_tokenizer,
    mini_causal_lm,
    problem_of,
    stay_offline,
)
from pilot.recipe import Batch, Recipe, RowFacts, Scale

if TYPE_CHECKING:
    import torch

stay_offline()

ASSETS = Path(__file__).resolve().parent / "assets"
MODEL = ASSETS / "llama_1m"
TRAIN = ASSETS / "pairs" / "train.jsonl.gz"
VALIDATION = {
    name: ASSETS / "pairs" / f"{name}.jsonl.gz"
    for name in ("validation", "validation_new_packages")
}


@dataclass(frozen=True, kw_only=True)
class Lora:
    """A LoRA adapter; ``target_modules`` null: what peft takes for this kind of model."""

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    target_modules: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The keys of ``recipe`` beside name, module and objective. Paths start where pilot runs.

    ``validation_frac`` (of the rows) is split off ``data`` when there is no ``validation_data``;
    ``truncate`` cuts rows to ``batch.sequence_length``; ``system`` is for rows without one;
    ``shuffle`` says whether the full run shuffles.
    """

    model: str | None = None
    data: str | None = None
    validation_data: str | None = None
    validation_frac: float = 0.1
    truncate: bool = True
    system: str | None = None
    lora: Lora | None = None
    shuffle: bool = True


def read_settings(settings: Mapping[str, Any]) -> Settings:
    """The recipe's own keys, typed; keys of pilot are left out."""
    known = {f.name for f in fields(Settings)}
    values = {key: value for key, value in settings.items() if key in known}
    if isinstance(values.get("lora"), Mapping):
        values["lora"] = Lora(**values["lora"])
    return Settings(**values)


def check_settings(settings: Mapping[str, Any]) -> list[tuple[str, object, str, str]]:
    """Quick checks: (key, value, rule, remedy) of every mistake. Loads neither data nor model."""
    own = read_settings(settings)
    found: list[tuple[str, object, str, str]] = []
    if problem := problem_of(_folder(own)):
        rule = f"must be the folder of a causal language model; it {problem[0]}"
        found.append(("model", own.model, rule, problem[1]))
    for key in ("data", "validation_data"):
        value = getattr(own, key)
        if value is not None and not Path(value).expanduser().is_file():
            what = "a folder" if Path(value).expanduser().is_dir() else "no file"
            rule = f"must be a file; there is {what} at {Path(value).expanduser().absolute()}"
            found.append((key, value, rule, "relative paths start where pilot runs"))
    if not 0.0 < own.validation_frac < 1.0:
        remedy = "0.1 holds out a tenth of the rows"
        found.append(("validation_frac", own.validation_frac, "must be in (0, 1)", remedy))
    return found + _check_lora(own.lora)


def _check_lora(lora: Lora | None) -> list[tuple[str, object, str, str]]:
    if lora is None:
        return []
    if importlib.util.find_spec("peft") is None:
        rule, remedy = str(MissingExtra("peft", "lora", "recipe.lora")).split("\n    remedy: ")
        return [("lora", "", rule, remedy)]
    names = lora.target_modules
    rules = (
        ("rank", lora.rank, lora.rank >= 1, "must be at least 1", "8 is usual"),
        ("alpha", lora.alpha, lora.alpha > 0, "must be above 0", "twice the rank is usual"),
        ("dropout", lora.dropout, 0 <= lora.dropout < 1, "must be in [0, 1)", "0 is usual"),
        ("target_modules", names, names != [], "must name modules", "null: peft's own choice"),
    )
    return [(f"lora.{k}", v, rule, todo) for k, v, good, rule, todo in rules if not good]


def input_files(settings: Mapping[str, Any]) -> list[Path]:
    """The files that are read: data, weights, configuration, tokenizer."""
    own = read_settings(settings)
    _, train, validation = _data_files(own)
    return [train, *validation.values(), *files_of(_folder(own))]


def build(settings: Mapping[str, Any], *, sequence_length: int | None, seed: int) -> Recipe:
    """Read and encode the data; the model is built later, by ``build_model``.

    Raises:
        DataError, ModelFolderError: a file or the model's folder cannot be used.
    """
    own = read_settings(settings)
    split, train_file, files = _data_files(own)
    tokenizer = load_tokenizer(_folder(own))
    rows = read_conversations(train_file)
    held_out: dict[str, tuple[Path, list[Conversation]]]
    if split:
        rows, held = split_by_answer(rows, own.validation_frac, train_file)
        held_out = {"validation": (train_file, held)}
    else:
        held_out = {name: (file, read_conversations(file)) for name, file in files.items()}
    max_tokens = sequence_length if own.truncate else None

    def encoded(rows: Sequence[Conversation], file: Path) -> list[Example]:
        return encode(rows, tokenizer, file, max_tokens=max_tokens, system=own.system)

    pad = tokenizer.pad_token_id
    return LlamaFt(
        settings=own,
        seed=seed,
        pad_id=next(i for i in (pad, tokenizer.eos_token_id, 0) if i is not None),
        train=encoded(rows, train_file),
        validation={name: encoded(held, file) for name, (file, held) in held_out.items()},
    )


def _folder(own: Settings) -> Path:
    return Path(own.model).expanduser() if own.model else MODEL


def _data_files(own: Settings) -> tuple[bool, Path, dict[str, Path]]:
    """Whether to split the training file, the training file, the validation files by set."""
    train = Path(own.data).expanduser() if own.data else TRAIN
    if own.validation_data:
        return False, train, {"validation": Path(own.validation_data).expanduser()}
    return (True, train, {}) if own.data else (False, train, VALIDATION)


@dataclass(frozen=True, kw_only=True)
class LlamaFt:
    """The recipe that ``build`` returns; see ``pilot.recipe.Recipe``."""

    settings: Settings
    seed: int
    pad_id: int
    train: Sequence[Example]
    validation: Mapping[str, Sequence[Example]]

    def facts(self, example: Example) -> RowFacts:
        """The first position is predicted by nothing: its label does not count."""
        return RowFacts(
            source=example.source,
            num_tokens=len(example.input_ids),
            num_supervised_tokens=int((example.labels[1:] != IGNORED).sum()),
        )

    def build_model(self, scale: Scale) -> torch.nn.Module:
        """The folder's model, or the same classes with 2 small layers and random weights."""
        folder = _folder(self.settings)
        mini = scale == "mini"
        model = mini_causal_lm(folder, seed=self.seed) if mini else load_causal_lm(folder)
        return model if self.settings.lora is None else self._with_adapter(model)

    def _with_adapter(self, model: torch.nn.Module) -> torch.nn.Module:
        import torch

        try:
            from peft import LoraConfig, get_peft_model
        except ImportError as error:
            raise MissingExtra("peft", "lora", "recipe.lora") from error
        lora = self.settings.lora
        assert lora is not None
        config = LoraConfig(
            task_type="CAUSAL_LM",
            r=lora.rank,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules=lora.target_modules,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            adapted: torch.nn.Module = get_peft_model(model, config)
        return adapted

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Rows padded on the right to the longest of them."""
        import torch

        width = max(len(example.input_ids) for example in examples)
        shape = (len(examples), width)
        ids = torch.full(shape, self.pad_id, dtype=torch.int64)
        labels = torch.full(shape, IGNORED, dtype=torch.int64)
        mask = torch.zeros(shape, dtype=torch.int64)
        for row, example in enumerate(examples):
            length = len(example.input_ids)
            ids[row, :length] = torch.from_numpy(example.input_ids)
            labels[row, :length] = torch.from_numpy(example.labels)
            mask[row, :length] = 1
        return {"input_ids": ids, "labels": labels, "attention_mask": mask}

    def num_supervised(self, batch: Batch) -> torch.Tensor:
        """Labels that are predicted: all but those of the first position."""
        return (batch["labels"][:, 1:] != IGNORED).sum(dim=1)

    def losses(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Per row the sum of the next-token cross entropy, in fp32 (fp64 for fp64 logits)."""
        import torch
        from torch.nn.functional import cross_entropy, pad

        logits = model(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False
        ).logits
        logits = logits if logits.dtype == torch.float64 else logits.float()
        # Shifting the labels instead of the logits spares a copy of the largest tensor.
        targets = pad(batch["labels"][:, 1:], (0, 1), value=IGNORED)
        flat = cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none"
        )
        return flat.view_as(targets).sum(dim=1)
