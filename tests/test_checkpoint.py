"""Checkpoints: exact, atomic, checksummed, pinned, and without code."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from pilot import checkpoint
from pilot.engines import seeds
from pilot.errors import CheckpointDamaged, DiskFull


def state(step: int) -> dict[str, Any]:
    """A small state with everything a real one has."""
    return {"step": step, "model": {"w": torch.arange(4.0) + step}, "random": seeds.random_state()}


def test_round_trip_is_exact(tmp_path: Path) -> None:
    torch.manual_seed(3)
    saved = checkpoint.save(tmp_path, 7, state(7), reasons=("start",))
    expected = torch.rand(3)
    loaded = checkpoint.load(checkpoint.find(tmp_path)[0])
    seeds.set_random_state(loaded["random"])
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(loaded["model"]["w"], torch.arange(4.0) + 7)
    assert checkpoint.find(tmp_path) == [saved]
    assert saved.reasons == ("start",) and saved.num_bytes > 0


def test_random_state_covers_python_and_numpy() -> None:
    import random

    import numpy as np

    seeds.seed_everything(5)
    kept = seeds.random_state()
    drawn = (random.random(), float(np.random.rand()), float(torch.rand(())))
    seeds.set_random_state(kept)
    assert drawn == (random.random(), float(np.random.rand()), float(torch.rand(())))


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
def test_damage_is_noticed_and_passed_over(tmp_path: Path, damage: str) -> None:
    checkpoint.save(tmp_path, 1, state(1), reasons=())
    newest = checkpoint.save(tmp_path, 2, state(2), reasons=())
    file = newest.path / "state.pt"
    if damage == "flip":
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(bytes(data))
    elif damage == "truncate":
        os.truncate(file, 100)
    else:
        file.unlink()
    with pytest.raises(CheckpointDamaged):
        checkpoint.load(newest)
    found = checkpoint.load_newest(tmp_path)
    assert found is not None and found[0].step == 1


def test_loading_executes_no_code(tmp_path: Path) -> None:
    """A pickle that would create a file is refused, although its checksum fits."""
    marker = tmp_path / "executed"

    class Evil:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(marker),))

    saved = checkpoint.save(tmp_path / "c", 1, state(1), reasons=())
    file = saved.path / "state.pt"
    file.write_bytes(pickle.dumps({"model": Evil()}))
    forged = checkpoint.Checkpoint(
        path=saved.path, step=1, reasons=(), num_bytes=1, sha256=checkpoint._sha256(file)
    )
    with pytest.raises(CheckpointDamaged):
        checkpoint.load(forged)
    assert not marker.exists()


def test_half_written_ones_are_not_seen(tmp_path: Path) -> None:
    (tmp_path / ".tmp_00000009_1").mkdir()
    (tmp_path / "step_00000009").mkdir()  # no manifest
    assert checkpoint.find(tmp_path) == []
    assert checkpoint.load_newest(tmp_path) is None
    checkpoint.prune(tmp_path, keep_newest=1)
    assert not (tmp_path / ".tmp_00000009_1").exists()


def test_pinned_ones_survive_pruning(tmp_path: Path) -> None:
    for step in range(1, 6):
        checkpoint.save(tmp_path, step, state(step), reasons=("start",) if step == 1 else ())
    second = checkpoint.find(tmp_path)[1]
    assert checkpoint.pin(second, "why").reasons == ("why",)
    assert checkpoint.pin(checkpoint.find(tmp_path)[1], "why").reasons == ("why",)
    checkpoint.prune(tmp_path, keep_newest=2)
    assert [(c.step, c.reasons) for c in checkpoint.find(tmp_path)] == [
        (1, ("start",)),
        (2, ("why",)),
        (4, ()),
        (5, ()),
    ]


def test_same_step_again_replaces(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, state(1), reasons=())
    checkpoint.save(tmp_path, 1, state(5), reasons=("start",))
    found = checkpoint.find(tmp_path)
    assert len(found) == 1 and checkpoint.load(found[0])["step"] == 5


def test_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    """A file-size limit makes the write fail in the middle, as a full disk does."""
    code = (
        "import resource, signal, sys, torch; from pathlib import Path\n"
        "from pilot import checkpoint; from pilot.errors import DiskFull\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try: checkpoint.save(Path(sys.argv[1]), 1, {'w': torch.zeros(100_000)}, reasons=())\n"
        "except DiskFull as e: print('disk full:', e)\n"
    )
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "disk full:" in done.stdout, done.stderr
    assert "resume" in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert DiskFull is not None


def test_a_writer_killed_between_its_renames_loses_nothing(tmp_path: Path) -> None:
    saved = checkpoint.save(tmp_path, 3, state(3), reasons=("start",))
    saved.path.rename(tmp_path / ".old_00000003")
    (found,) = checkpoint.find(tmp_path)
    assert found.step == 3 and found.reasons == ("start",)


def test_a_leftover_of_the_same_process_id_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / f".tmp_00000001_{os.getpid()}").mkdir()
    checkpoint.save(tmp_path, 1, state(1), reasons=())
    assert [c.step for c in checkpoint.find(tmp_path)] == [1]


def test_states_whose_records_were_lost_are_passed_over(tmp_path: Path) -> None:
    for step in (8, 16, 24):
        checkpoint.save(tmp_path, step, state(step), reasons=())
    found = checkpoint.load_newest(tmp_path, at_most_step=23)
    assert found is not None and found[0].step == 16
    assert checkpoint.load_newest(tmp_path, at_most_step=7) is None
