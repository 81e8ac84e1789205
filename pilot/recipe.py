"""The recipe contract, and ``RecipeHandle``: builds a recipe at a scale, on a device, in a dtype.

A recipe is one Python file: ``recipes/NAME.py`` in the user's directory, or one of pilot's own. It
is loaded by path, so an installed package called ``recipes`` cannot hide it. It knows nothing of
verdicts: it says what trains.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pilot.errors import ConfigError, Mistake

if TYPE_CHECKING:
    import torch

Scale = Literal["full", "mini"]
Batch = Mapping[str, "torch.Tensor"]


@dataclass(frozen=True, kw_only=True)
class RowFacts:
    """What the plan must know of a row: its source and its length. Tokens, not characters."""

    source: str
    num_tokens: int
    num_supervised_tokens: int


class Recipe(Protocol):
    """What a recipe's ``build(settings, sequence_length, seed)`` returns, in its whole form.

    ``train`` and each set in ``validation`` are sequences of examples of any type; a row's id is
    its index. The first validation set is the primary one: it decides, the others only warn.
    Less is enough (``train``, ``validation``, ``build_model``, ``collate`` and one loss), and more
    is possible (a stream, its own optimizer): the contract stands in ``recipes/README.md``, its
    defaults in ``pilot/engines/complete.py``.
    """

    @property
    def train(self) -> Sequence[Any]:
        """The training rows."""
        ...

    @property
    def validation(self) -> Mapping[str, Sequence[Any]]:
        """The validation sets by name, the primary one first."""
        ...

    def facts(self, example: Any) -> RowFacts:
        """Source and length of one example."""
        ...

    def build_model(self, scale: Scale) -> torch.nn.Module:
        """The model, with its weights, on the CPU in fp32. ``mini``: same classes, tiny sizes."""
        ...

    def collate(self, examples: Sequence[Any]) -> Batch:
        """A batch of B examples as tensors with B as the first dimension."""
        ...

    def num_supervised(self, batch: Batch) -> torch.Tensor:
        """Supervised tokens of each example in the batch: shape [B], integer."""
        ...

    def losses(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Sum of the token losses of each example: shape [B], nats (or the objective's unit)."""
        ...


@dataclass(frozen=True, kw_only=True)
class RecipeHandle:
    """A recipe that can be built again, the same every time.

    ``module_path`` is the recipe's file; ``settings`` is the ``recipe`` section of the
    configuration; ``sequence_length`` in tokens (null: whatever the recipe takes).
    """

    module_path: Path
    settings: Mapping[str, Any]
    sequence_length: int | None
    seed: int

    @property
    def objective(self) -> str:
        """``lm`` (default), ``preference``, ``rl`` or ``regression``: which rules apply."""
        return str(self.settings.get("objective", "lm"))

    def build(self) -> Recipe:
        """Load the module and build data and collator; the model is built by ``build_model``.

        Raises:
            DataError, ModelFolderError: the user's files cannot be used.
        """
        module = load_module(self.module_path)
        recipe: Recipe = module.build(
            dict(self.settings), sequence_length=self.sequence_length, seed=self.seed
        )
        return recipe

    def input_files(self) -> list[Path]:
        """The files that the recipe reads (data, weights, tokenizer), for the fingerprint."""
        module = load_module(self.module_path)
        lister: Callable[[dict[str, Any]], list[Path]] | None = getattr(module, "input_files", None)
        return sorted(lister(dict(self.settings))) if lister else []


def load_module(path: Path) -> ModuleType:
    """Import a recipe's file by its path; two loads of one path give the same module.

    The module has the same name in every process: caches that count the code of a function
    (``datasets.map``) then find what an earlier one made.
    """
    digest = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()
    name = f"pilot_recipe_{path.stem}_{digest[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load a recipe from {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def find_recipe_file(recipe: Mapping[str, Any], start: Path) -> Path:
    """The Python file that defines what trains: a recipe's module, or the trainer's callable.

    Raises:
        ConfigError: no such file; names the places that were looked at.
    """
    target = recipe.get("trainer")
    if not target or recipe.get("module"):
        return find_module(str(recipe.get("module", recipe.get("name"))), start)
    place = str(target).rpartition(":")[0] or str(target)
    if place.endswith(".py"):
        found = start / Path(place).expanduser()
    else:
        found = start.joinpath(*place.split(".")).with_suffix(".py")
        if not found.is_file():
            spec = _find_spec(place, start)
            found = Path(spec.origin) if spec and spec.origin else found
    if found.is_file():
        return found.resolve()
    rule, remedy = f"there is no file {found}", "give module:callable or path/to/file.py:callable"
    raise ConfigError([Mistake(key="recipe.trainer", value=repr(target), rule=rule, remedy=remedy)])


def _find_spec(name: str, start: Path) -> Any:
    """The place of a dotted module; nothing of the user's is imported to find it."""
    spec: Any = None
    places: Any = [str(start), *sys.path]
    parts = name.split(".")
    for index in range(len(parts)):
        try:
            spec = importlib.machinery.PathFinder.find_spec(".".join(parts[: index + 1]), places)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        places = list(spec.submodule_search_locations or ())
    return spec


def find_module(name: str, start: Path) -> Path:
    """The file of recipe module ``name``: the user's ``recipes/`` under ``start`` wins over ours.

    ``name`` may also be a path that ends in ``.py``.

    Raises:
        ConfigError: no such file; names the places that were looked at.
    """
    here = Path(__file__).resolve().parent
    if name.endswith(".py"):
        places = [start / name]
    else:
        roots = (start / "recipes", here / "recipes", here.parent / "recipes")
        places = [root / f"{name}.py" for root in roots]
    for place in places:
        if place.is_file():
            return place.resolve()
    looked = ", ".join(str(place) for place in places)
    raise ConfigError(
        [
            Mistake(
                key="recipe.module",
                value=repr(name),
                rule="must name a recipe's Python file",
                remedy=f"looked at {looked}",
            )
        ]
    )
