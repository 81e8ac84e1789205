"""Several processes of one arm: ``python -m pilot.launchers.ranks N WORDS``.

It is torchrun (its own agent, on 127.0.0.1, with free ports: two pilots never meet) around
``python -m pilot WORDS``, and differs in how it ends: as the process that failed first did, by the
same signal or with the same code. So whoever started it sees what a single process would show.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pilot.engines import PARENT_PID
from pilot.engines.world import EXIT_PEERS
from pilot.entry import die_with_parent

ADDRESS = "127.0.0.1"


def main(words: Sequence[str]) -> int:
    """Run ``python -m pilot`` with the words behind the first, in so many processes."""
    die_with_parent()
    os.environ[PARENT_PID] = str(os.getpid())  # a process of the arm ends when this one does
    if sys.platform.startswith("linux"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    code = 0
    with tempfile.TemporaryDirectory(prefix="pilot_ranks_") as folder:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=int(words[0]),
            logs_specs=DefaultLogsSpecs(log_dir=folder),  # torch leaves its own folder behind
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint=f"{ADDRESS}:0",
            local_addr=ADDRESS,
            max_restarts=0,  # pilot starts an arm again, from its newest state
            shutdown_timeout=60,  # process 0 may have to write down what a failure means
        )
        try:
            elastic_launch(config, sys.executable)("-m", "pilot", *words[1:])
        except ChildFailedError as error:
            code = first_code({r: f.exitcode for r, f in error.failures.items()})
        except SignalException as error:
            code = -int(error.sigval)
    return end_as(code)


def first_code(codes: Mapping[Any, int]) -> int:
    """The exit code that explains the others: those of processes that the agent ended come last.

    Args:
        codes: exit codes by rank, in the order in which they were seen.
    """
    own = [code for code in codes.values() if code not in (EXIT_PEERS, -signal.SIGTERM)]
    return own[0] if own else next(iter(codes.values()))


def end_as(code: int) -> int:
    """End by the signal of a negative code; else the code is returned."""
    if code < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the process itself left its own
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
