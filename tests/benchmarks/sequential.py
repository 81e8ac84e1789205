"""How often the early ending, and the final word, of an arm are wrong, and what ending early saves.

    python -m tests.benchmarks.sequential [--arms 20000]

Simulated paired differences of the step losses (arm - baseline), with no effect, with effects just
at the smallest one that anyone would act on (the worst case of either wrong decision), and above.
``tests/compare/test_sequential.py`` holds the vectorised rule against the product's ``decide``.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from pilot.compare.paired_steps import BLOCK_STEPS, RECENT_BLOCKS
from pilot.compare.sequential import (
    FIRST_LOOK_STEPS,
    LAST_LOOK_BEFORE_END_STEPS,
    LOOK_EVERY_STEPS,
)

Floats = npt.NDArray[np.float64]
PEAK_STEPS, COOLDOWN_STEPS, ERROR_RATE = 128, 36, 0.05
# Measured on the default recipe: 0.5 % of the loss is 0.023, a paired step loss has sd 0.085.
LEAST, STEP_SD = 0.023, 0.085
LOOKS = range(FIRST_LOOK_STEPS, PEAK_STEPS - LAST_LOOK_BEFORE_END_STEPS + 1, LOOK_EVERY_STEPS)
NOISES = ("white", "AR 0.3", "AR 0.6", "t, 3 free")


@dataclass(frozen=True, kw_only=True)
class Ends:
    """Per arm: whether it was called worse, or no different, and after how many peak steps."""

    worse: npt.NDArray[np.bool_]
    same: npt.NDArray[np.bool_]
    steps: npt.NDArray[np.int64]


def noise(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Unit-variance noise: independent, autocorrelated, or heavy-tailed (Student's t)."""
    if kind.startswith("t,"):
        return rng.standard_t(3, shape) / np.sqrt(3.0)
    white = rng.standard_normal(shape)
    if kind == "white":
        return white
    rho = float(kind.removeprefix("AR "))
    series = np.empty(shape)
    series[:, 0] = white[:, 0]
    for step in range(1, shape[1]):
        series[:, step] = rho * series[:, step - 1] + np.sqrt(1 - rho**2) * white[:, step]
    return series


def end_early(
    change: Floats, *, least: float, noise_sd: Floats | float = 0.0, num_runs: int = 3
) -> Ends:
    """The rule of ``pilot.compare.sequential.decide`` for rows of differences, both decisions.

    ``worse`` is that of a lower rate, ``same`` that of an equal one; they exclude each other.
    """
    num = len(change)
    worse, same = np.zeros(num, dtype=bool), np.zeros(num, dtype=bool)
    steps = np.full(num, change.shape[1])
    noise_var = 2.0 * np.broadcast_to(np.asarray(noise_sd, dtype=float), num) ** 2
    for look in LOOKS:
        blocks = change[:, :look].reshape(num, -1, BLOCK_STEPS).mean(axis=2)
        count = blocks.shape[1]
        mean, var = blocks.mean(axis=1), blocks.var(axis=1, ddof=1) / count
        free = (var + noise_var) ** 2 / (var**2 / (count - 1) + noise_var**2 / (num_runs - 1))
        tail = 1 - ERROR_RATE / len(LOOKS) / 2
        half = stdtrit(free, tail) * np.sqrt(var + noise_var)
        half = np.maximum(half, stdtrit(count - 1, tail) * np.sqrt(var))
        recent = blocks[:, -RECENT_BLOCKS:].mean(axis=1)
        along = np.arange(count) - (count - 1) / 2
        slope = blocks @ along / (along @ along)
        outlook = mean + slope * (change.shape[1] / BLOCK_STEPS - 1 - (count - 1) / 2)
        open_ = ~(worse | same)
        above = open_ & (mean - half > least) & (np.minimum(recent, outlook) > least)
        far = np.maximum(np.abs(recent), np.abs(outlook))
        within = open_ & (np.abs(mean) + half <= least) & (far <= least)
        worse |= above
        same |= within
        steps[above | within] = look
    return Ends(worse=worse, same=same, steps=steps)


def drifting(kind: str) -> Floats:
    """The mean difference at each peak step, in units of the smallest effect."""
    along = np.linspace(0.0, 1.0, PEAK_STEPS)
    first, last = (float(text) for text in kind.split(" to "))
    return first + (last - first) * along


def sequential_table(num: int, rng: np.random.Generator) -> None:
    """Wrong decisions per arm at the worst case, and where arms with an effect end."""
    print(f"\n{num} arms a row; effects in units of the smallest one anyone would act on")
    print(f"{'noise':10} {'effect':>8} {'worse':>8} {'no diff.':>9} {'peak steps':>11}")
    for kind in NOISES:
        for effect in (0.0, 1.0, 2.0, 4.0, 8.0):
            change = LEAST * effect + STEP_SD * noise(kind, (num, PEAK_STEPS), rng)
            _row(kind, f"{effect:g}", end_early(change, least=LEAST))
        quiet = LEAST + 0.3 * STEP_SD * noise(kind, (num, PEAK_STEPS), rng)
        _row(kind, "1, quiet", end_early(quiet, least=LEAST))
        quiet = 0.3 * STEP_SD * noise(kind, (num, PEAK_STEPS), rng)
        _row(kind, "0, quiet", end_early(quiet, least=LEAST))
    for effect, scale in (("0 to 8", 1.0), ("4 to 0", 1.0), ("8 to -4", 1.0), ("-1 to 3", 0.3)):
        steps = scale * STEP_SD * noise("AR 0.3", (num, PEAK_STEPS), rng)
        change = LEAST * drifting(effect) + steps
        _row("AR 0.3", effect, end_early(change, least=LEAST))


def _row(kind: str, effect: str, ends: Ends) -> None:
    numbers = (ends.worse.mean(), ends.same.mean(), ends.steps.mean())
    print(f"{kind:10} {effect:>8} {numbers[0]:8.2%} {numbers[1]:9.2%} {numbers[2]:11.0f}")


def floor_table(num: int, rng: np.random.Generator) -> None:
    """The same with run-to-run noise of the level, its sd known from three runs."""
    print("\nwith run-to-run noise, sd from three runs (the baseline among them), white steps")
    print(f"{'run sd':10} {'effect':>8} {'worse':>8} {'no diff.':>9} {'peak steps':>11}")
    for run_sd in (0.25, 1.0, 4.0):
        for effect in (1.0, 8.0):
            runs = LEAST * run_sd * rng.standard_normal((num, 4))  # the last is the arm's
            sd = runs[:, :3].std(axis=1, ddof=1)
            steps = STEP_SD * noise("white", (num, PEAK_STEPS), rng)
            change = LEAST * effect + (runs[:, 3] - runs[:, 0])[:, None] + steps
            ends = end_early(change, least=LEAST, noise_sd=sd)
            _row(f"{run_sd:g}", f"{effect:g}", ends)


def final_table(num: int, rng: np.random.Generator, examples: int = 256) -> None:
    """The final word with no effect: |d| above t * sqrt(SE^2 + 2 s^2), no smallest effect."""
    print("\nfinal validation, no effect: called better or worse although the smallest effect is 0")
    for ratio in (0.0, 0.3, 1.0, 3.0, 30.0):
        runs = ratio * rng.standard_normal((num, 4))
        se = np.sqrt(rng.chisquare(examples - 1, num) / (examples - 1))
        change = rng.standard_normal(num) + runs[:, 3] - runs[:, 0]
        noise_var = 2.0 * runs[:, :3].var(axis=1, ddof=1)
        total = se**2 + noise_var
        free = total**2 / (se**4 / (examples - 1) + noise_var**2 / 2)
        wrong = np.abs(change) > stdtrit(free, 1 - ERROR_RATE / 2) * np.sqrt(total)
        print(f"run-to-run sd {ratio:4g} x SE of the examples: {wrong.mean():.2%}")


def main() -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", type=int, default=20_000)
    num = parser.parse_args().arms
    rng = np.random.default_rng(0)
    sequential_table(num, rng)
    floor_table(num, rng)
    final_table(num, rng)


if __name__ == "__main__":
    main()
