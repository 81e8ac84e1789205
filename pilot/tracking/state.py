"""``tracking.json``: which tracking runs a pilot is, and what of them has been sent."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from pilot.jsonl import write_json

_VERSION = 2


@dataclass
class RunState:
    """What one run has received: mutable on purpose, saved after every part that arrived.

    ``metrics`` maps a series to the last step sent; ``is_sending`` says that series were on their
    way: only the store knows which of them arrived. ``scalars`` holds the values sent, ``round``
    counts how often they were. ``artifacts`` maps a file to the hash of its content.
    """

    run_id: str = ""
    params_sent: bool = False
    dataset_sent: bool = False
    is_sending: bool = False
    metrics: dict[str, int] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    round: int = 0
    artifacts: dict[str, str] = field(default_factory=dict)


@dataclass
class State:
    """The runs of one pilot in one store.

    ``store`` is the tracking URI without credentials; a pilot sent to another store is new there.
    ``pilot_id`` is written before any run is created and is a tag of every run, so that a run whose
    id was not saved (killed in between) is found again. ``start_ms`` makes the time stamps of
    points the same in every attempt.
    """

    store: str
    pilot_id: str = field(default_factory=lambda: uuid4().hex[:16])
    experiment_id: str = ""
    link: str = ""
    arms_link: str = ""
    status: str = "partial"
    start_ms: int = 0
    parent: RunState = field(default_factory=RunState)
    arms: dict[str, RunState] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        write_json(path, {"schema_version": _VERSION, **asdict(self)})


def read_state(path: Path, store: str) -> State:
    """The saved state, or an empty one: no file, damaged, another version or another store."""
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if data.pop("schema_version") == _VERSION and data.get("store") == store:
            parent = RunState(**data.pop("parent"))
            arms = {name: RunState(**run) for name, run in data.pop("arms").items()}
            return State(**data, parent=parent, arms=arms)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass
    return State(store=store)
