"""pilot: may this training run start as it is, and if not, which change makes it safe?

From the command line: ``python -m pilot +recipe=...``. In a script with a Trainer of Hugging Face
of your own: ``pilot.PilotCallback(out_dir, verdict=...)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pilot.callback import PilotCallback as PilotCallback

__version__ = "0.1.0"
__all__ = ["PilotCallback", "__version__"]


def __getattr__(name: str) -> Any:
    """``pilot.PilotCallback``, imported when it is asked for: it needs torch and transformers."""
    if name != "PilotCallback":
        raise AttributeError(f"module 'pilot' has no attribute {name!r}")
    try:
        from pilot.callback import PilotCallback
    except ModuleNotFoundError as error:
        from pilot.errors import MissingExtra

        package = str(error.name).partition(".")[0]
        raise MissingExtra(package, "transformers", "pilot.PilotCallback") from error
    return PilotCallback


def __dir__() -> list[str]:
    """The names that a user may look for, those imported on demand included."""
    return sorted({*globals(), *__all__})
