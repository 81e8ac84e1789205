"""``tracking.json``: which tracking run a pilot is, and what of it has been sent."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pilot.jsonl import write_json

_VERSION = 1


@dataclass
class State:
    """Mutable on purpose: it is written after every part that arrived.

    ``store`` is the tracking URI without credentials; a pilot sent to another store is a new run
    there. ``metrics`` maps a metric to the last step sent, ``scalars`` to the value sent,
    ``artifacts`` a file to the hash sent. ``start_ms`` makes the time stamps of points the same
    in every attempt, so that a store drops what it has already.
    """

    store: str
    experiment_id: str = ""
    run_id: str = ""
    link: str = ""
    status: str = "partial"
    start_ms: int = 0
    params_sent: bool = False
    dataset_sent: bool = False
    metrics: dict[str, int] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        write_json(path, {"schema_version": _VERSION, **asdict(self)})


def read_state(path: Path, store: str) -> State:
    """The saved state, or an empty one: no file, damaged, another version or another store."""
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if data.pop("schema_version") == _VERSION and data.get("store") == store:
            return State(**data)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass
    return State(store=store)
