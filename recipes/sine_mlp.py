"""Fit y = sin(x) with a small network: shows in seconds what a learning rate and clipping do.

A network with one hidden layer (1 -> width -> 1, tanh) under plain gradient descent on the mean
squared error. The output layer is linear in the features tanh(wx + b), whose mean outer product
has an eigenvalue of up to ``width``. So a rate below 1/width descends, while at rate 1 each step
multiplies the error by up to 2 * width - 1: it grows exponentially until fp64 overflows. Clipping
keeps every step at most as long as the rate; at rate 1 the features saturate, stay finite and learn
nothing.

The start is no random network but one that plain gradient descent has brought to a training loss
of ``start_loss``: like a fine-tune, it has something to lose. It is computed in fp64 and rounded to
fp32, so a run in fp32 and one in fp64 start from the same weights.

``x_max`` is 4.0, not pi: on [-pi, pi] saturated features, which are steps, still fit a sine to a
mean squared error of 0.04, and the run that learned nothing would look better than its start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pilot.errors import ConfigError, Mistake
from pilot.recipe import Batch, Recipe, RowFacts, Scale

if TYPE_CHECKING:
    import torch

Point = tuple[float, float]

_START_RATE = 0.01
_MAX_START_STEPS = 2000  # about 500 are needed
_MINI_WIDTH = 4


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The keys of ``recipe`` beside name, module and objective.

    ``width``: hidden units. ``num_points``, ``num_validation_points``: points drawn uniformly from
    [-``x_max``, ``x_max``] with ``points_seed`` (the validation points with the next seed).
    ``init_scale``: hidden weights and biases are uniform in +-init_scale, output weights in
    +-init_scale / sqrt(width). ``start_loss``: training loss that the start is brought to; null:
    the random start itself.
    """

    width: int = 80
    num_points: int = 64
    num_validation_points: int = 256
    x_max: float = 4.0
    init_scale: float = 0.4
    start_loss: float | None = 0.065
    points_seed: int = 0
    shuffle: bool = True


def read_settings(settings: Mapping[str, Any]) -> Settings:
    """The recipe's own keys, typed; keys of pilot are left out."""
    known = {f.name for f in fields(Settings)}
    return Settings(**{key: value for key, value in settings.items() if key in known})


def check_settings(settings: Mapping[str, Any]) -> list[tuple[str, object, str, str]]:
    """(key, value, rule, remedy) of every value out of bounds."""
    own = read_settings(settings)
    bounds = (
        ("width", own.width >= 1, "must be at least 1"),
        ("num_points", own.num_points >= 1, "must be at least 1"),
        ("num_validation_points", own.num_validation_points >= 2, "must be at least 2"),
        ("x_max", own.x_max > 0, "must be above 0"),
        ("init_scale", own.init_scale > 0, "must be above 0"),
        ("start_loss", own.start_loss is None or own.start_loss > 0, "must be above 0, or null"),
        ("points_seed", own.points_seed >= 0, "must be at least 0"),
    )
    default = Settings()
    return [
        (key, getattr(own, key), rule, f"the default is {getattr(default, key)}")
        for key, good, rule in bounds
        if not good
    ]


def build(settings: Mapping[str, Any], *, sequence_length: int | None, seed: int) -> Recipe:
    """Draw the points; ``seed`` is for the initial weights alone. There are no sequences."""
    own = read_settings(settings)
    return SineMlp(
        settings=own,
        seed=seed,
        train=draw_points(own.num_points, own.x_max, own.points_seed),
        validation={
            "validation": draw_points(own.num_validation_points, own.x_max, own.points_seed + 1)
        },
    )


def draw_points(count: int, x_max: float, seed: int) -> list[Point]:
    """(x, sin x) for ``count`` points, uniform in [-x_max, x_max]."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    unit = torch.rand(count, generator=generator, dtype=torch.float64)
    return [(x, math.sin(x)) for x in ((2.0 * unit - 1.0) * x_max).tolist()]


@dataclass(frozen=True, kw_only=True)
class SineMlp:
    """The recipe that ``build`` returns; see ``pilot.recipe.Recipe``. One point is one 'token'."""

    settings: Settings
    seed: int
    train: Sequence[Point]
    validation: Mapping[str, Sequence[Point]]

    def facts(self, example: Point) -> RowFacts:
        """All points are alike."""
        return RowFacts(source="sine", num_tokens=1, num_supervised_tokens=1)

    def build_model(self, scale: Scale) -> torch.nn.Module:
        """The network at its start; ``mini``: 4 hidden units at random weights.

        Raises:
            ConfigError: the start loss is out of reach.
        """
        mini = scale == "mini"
        model = self._random_start(_MINI_WIDTH if mini else self.settings.width)
        if self.settings.start_loss is not None and not mini:
            self._descend_to(model, self.settings.start_loss)
        return model.float()

    def _random_start(self, width: int) -> torch.nn.Sequential:
        import torch

        generator = torch.Generator().manual_seed(self.seed)
        with torch.random.fork_rng(devices=[]):  # the layers draw weights that are replaced below
            hidden, out = torch.nn.Linear(1, width).double(), torch.nn.Linear(width, 1).double()
        scale = self.settings.init_scale
        bounds = (
            (hidden.weight, scale),
            (hidden.bias, scale),
            (out.weight, scale / math.sqrt(width)),
            (out.bias, 0.0),
        )
        with torch.no_grad():
            for tensor, bound in bounds:
                tensor.uniform_(-bound, bound, generator=generator)
        return torch.nn.Sequential(hidden, torch.nn.Tanh(), out)

    def _descend_to(self, model: torch.nn.Module, target: float) -> None:
        import torch

        batch = self.collate(self.train)
        optimizer = torch.optim.SGD(model.parameters(), lr=_START_RATE)
        for _ in range(_MAX_START_STEPS):
            loss = self.losses(model, batch).mean()
            if float(loss.detach()) <= target:
                return
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        mistake = Mistake(
            key="recipe.start_loss",
            value=repr(target),
            rule=f"out of reach: {float(loss.detach()):.3g} after {_MAX_START_STEPS} steps",
            remedy="raise it, or set it to null for a random start",
        )
        raise ConfigError([mistake])

    def collate(self, examples: Sequence[Point]) -> Batch:
        """``x`` and ``y`` of shape [B, 1] in fp64: the model's own type decides the arithmetic."""
        import torch

        points = torch.tensor(examples, dtype=torch.float64)
        return {"x": points[:, :1], "y": points[:, 1:]}

    def num_supervised(self, batch: Batch) -> torch.Tensor:
        """One for each point."""
        return batch["x"].new_ones(len(batch["x"])).long()

    def losses(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Squared error of each point, shape [B]; in fp32 at least."""
        import torch

        predicted = model(batch["x"].to(next(model.parameters()).dtype))
        dtype = torch.promote_types(predicted.dtype, torch.float32)
        error = predicted.to(dtype) - batch["y"].to(dtype)
        losses: torch.Tensor = error.square().sum(dim=1)
        return losses
