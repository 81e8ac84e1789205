"""The processes of an arm that only follow its first one; they write nothing but their own failure.

A failure of the user's code in one of them is the arm's outcome. It is written from here, before
the process ends: the others then see only that a peer is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import yaml

from pilot.config import Config, validate
from pilot.engines import world
from pilot.engines.base import Engine, Observer
from pilot.engines.choose import open_workload
from pilot.engines.ending import failed
from pilot.engines.guard import guard
from pilot.engines.leader import BeginAgain, follow
from pilot.engines.team import team
from pilot.engines.workload import Workload
from pilot.errors import PilotError, RecipeFailure
from pilot.folder import ArmFolder, Job, PilotFolder, read_json
from pilot.jsonl import from_json
from pilot.plan import read_plan

_NO_TEAM = (
    "the Trainer's processes do not know of each other: they would train as many separate runs\n"
    "    remedy: on a CPU set use_cpu=True in its arguments"
)


def follow_arm(folder: ArmFolder) -> int:
    """Do what process 0 does with the arm in ``folder``; returns this process's exit code."""
    pilot_folder = PilotFolder(folder.root.parent.parent)
    config = validate(yaml.safe_load(folder.config.read_text(encoding="utf-8")))
    threads = read_plan(read_json(pilot_folder.plan)).num_threads
    if threads:
        torch.set_num_threads(threads)

    def make() -> Engine:
        job = from_json(Job, read_json(folder.job))
        with guard("build", step=None, row_ids=()):
            workload = open_workload(config, Path(job.module_path), pilot_folder)
        order = np.load(pilot_folder.order, allow_pickle=False)
        return workload.make_engine(order=order, first_step=job.start_step + 1, observer=Observer())

    return _follow(make, folder.outcome)


def follow_survey(workload: Workload, config: Config, failure: Path) -> int:
    """Do what process 0 does when it measures the model; returns this process's exit code."""
    order = np.zeros(config.rows_per_step, dtype=np.int64)

    def make() -> Engine:
        return workload.make_engine(order=order, first_step=1, observer=Observer())

    return _follow(make, failure)


def _follow(make: Callable[[], Engine], outcome: Path) -> int:
    engine: Engine | None = None
    while True:
        try:
            engine = make()
            together = team()
            if together is None:
                raise PilotError(_NO_TEAM)
            follow(engine, together)
            return 0
        except BeginAgain:
            continue
        except world.PeerLost:
            world.wait_for_the_agent()
            return world.EXIT_PEERS
        except RecipeFailure as failure:
            if world.is_lost_peer(failure.error):
                world.wait_for_the_agent()
            world.leave(outcome, failed(failure, engine.step if engine else 0, engine))
            return world.EXIT_PEERS
