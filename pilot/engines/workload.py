"""What is asked of a workload, the user's side of the engine contract: rows, sets, how to begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pilot.engines.base import Engine, Observer
from pilot.errors import Mistake

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from pilot.folder import PilotFolder
    from pilot.recipe import RowFacts
    from pilot.view import RowTable


class Workload(Protocol):
    """What the user trains, as an engine sees it before any step: rows, sets, and how to begin."""

    @property
    def num_rows(self) -> int | None:
        """Training rows; None: a stream, whose rows have no ids and no known number."""
        ...

    @property
    def goes_back(self) -> bool:
        """Whether rows that were trained on can be had again: for a branch, a replayed step."""
        ...

    @property
    def validation_rows(self) -> Mapping[str, int]:
        """Rows of each validation set, the primary one first."""
        ...

    def require_contract(self) -> None:
        """Check that the user's code gives what is used.

        Raises:
            ConfigError: names everything that is missing or of the wrong kind.
        """
        ...

    def model_mistakes(self, model: torch.nn.Module) -> list[Mistake]:
        """What can be wrong only with the model there: rates that the user's code gives."""
        ...

    def facts(self) -> list[RowFacts]:
        """Source and length of every training row; empty for a stream."""
        ...

    def audit(self, vocab_size: int | None, max_positions: int | None) -> list[dict[str, Any]]:
        """What the label audit found in each set (``pilot/data/audit.py``).

        Of a stream the first rows are looked at.
        """
        ...

    def digests(self) -> list[dict[str, Any]]:
        """What binds the pilot to data that no file holds; empty where the files are bound."""
        ...

    def changed_data(self, surveyed: Sequence[Mapping[str, Any]]) -> list[str]:
        """In what the data are not the ``surveyed`` digests, one line for each set."""
        ...

    def hold_out(self, folder: PilotFolder, rows: RowTable) -> dict[str, Any] | None:
        """Without a validation set: hold out training rows, write which ones into ``folder``.

        ``rows`` are the surveyed training rows. Returns ``mode``, ``num_rows`` and ``refused`` (why
        none); None: there is a set.
        """
        ...

    def order_is_fixed(self) -> bool:
        """Whether ``own_order`` is what every process will draw."""
        ...

    def own_order(self, num_rows: int) -> npt.NDArray[np.int64] | None:
        """The first ``num_rows`` row ids of the full run's own loader; None: pilot draws them."""
        ...

    def run_facts(self) -> Mapping[str, Any]:
        """What says which run this is beside configuration, code and data: for the fingerprint."""
        ...

    def make_engine(
        self,
        *,
        order: npt.NDArray[np.int64],
        first_step: int,
        observer: Observer,
        attempt: int = 1,
    ) -> Engine:
        """An engine that begins with ``first_step`` on the rows of ``order``."""
        ...
