"""Who owns the training loop.

``base.py`` and ``workload.py`` are the contract; ``native.py`` is pilot's own loop.
"""

from collections.abc import Mapping

PARENT_PID = "PILOT_PARENT_PID"
"""Environment variable: the process whose death ends an arm."""

MAX_WORLD_SIZE: Mapping[str, int | None] = {"native": 1, "transformers": None}
"""Most processes of one run, by engine; None: as many as there are."""
