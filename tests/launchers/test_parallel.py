"""How cores and memory are shared out."""

from __future__ import annotations

import pytest

from pilot.config import Launcher
from pilot.launchers.parallel import fitting, num_cores, parallelism, threads_of_each


@pytest.mark.parametrize(
    ("keys", "device", "cores", "runs", "expected"),
    [
        ({}, "cpu", 2, 7, (2, 1)),
        ({}, "cpu", 1, 7, (1, None)),
        ({}, "cpu", 64, 7, (7, 9)),
        ({}, "cpu", 8, 1, (1, None)),
        ({"num_threads": 4}, "cpu", 8, 7, (2, 4)),
        ({"num_threads": 16}, "cpu", 8, 7, (1, 16)),
        ({"max_parallel": 3}, "cpu", 8, 7, (3, 2)),
        ({"max_parallel": 1}, "cpu", 8, 7, (1, None)),
        ({"max_parallel": 4}, "cpu", 2, 7, (4, 1)),
        ({"num_processes": 2}, "cpu", 2, 7, (1, 1)),
        ({"num_processes": 2}, "cpu", 8, 7, (4, 1)),
        ({"num_processes": 2, "num_threads": 2}, "cpu", 8, 7, (2, 2)),
        ({"num_processes": 4, "max_parallel": 1}, "cpu", 8, 7, (1, 2)),
        ({"num_processes": 4}, "cpu", 2, 1, (1, 1)),
        ({"num_processes": 8}, "cuda", 64, 7, (1, None)),
        ({}, "cuda", 64, 7, (1, None)),
        ({"max_parallel": 2}, "cuda", 64, 7, (2, None)),
    ],
)
def test_cores_are_shared_out(
    keys: dict[str, int], device: str, cores: int, runs: int, expected: tuple[int, int | None]
) -> None:
    assert parallelism(Launcher.model_validate(keys), device, cores, runs) == expected


@pytest.mark.parametrize(
    ("keys", "device", "at_once", "threads"),
    [
        ({}, "cpu", 4, 4),
        ({}, "cpu", 3, 5),
        ({}, "cpu", 32, 1),
        ({}, "cpu", 1, None),
        ({"num_threads": 2}, "cpu", 4, 2),
        ({}, "cuda", 4, None),
    ],
)
def test_fewer_runs_have_more_threads(
    keys: dict[str, int], device: str, at_once: int, threads: int | None
) -> None:
    assert threads_of_each(Launcher.model_validate(keys), device, 16, at_once) == threads


def test_memory_limits_the_number_of_runs() -> None:
    assert fitting(7, 1_000, 10_000) == 6  # 60 % of the limit
    assert fitting(7, 9_000, 10_000) == 1
    assert fitting(7, 90_000, 10_000) == 1
    assert fitting(2, None, 10_000) == 2
    assert fitting(2, 1_000, None) == 2


def test_there_is_a_core() -> None:
    assert num_cores() >= 1
