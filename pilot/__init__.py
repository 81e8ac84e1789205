"""pilot: may this training run start as it is, and if not, which change makes it safe?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pilot.callback import PilotCallback as PilotCallback

__version__ = "0.1.0"
__all__ = ["PilotCallback", "__version__"]


def __getattr__(name: str) -> Any:
    """``pilot.PilotCallback``, imported when it is asked for: it needs torch and transformers."""
    if name == "PilotCallback":
        from pilot.callback import PilotCallback

        return PilotCallback
    raise AttributeError(f"module 'pilot' has no attribute {name!r}")
