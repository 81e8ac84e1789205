"""How numbers, times and foreign text are written for people: the same in every projection."""

from __future__ import annotations

import math
import re

FIGURE_NAME = "pilot.png"

# Escape sequences (CSI, OSC and the two-character ones), then what is left of control characters,
# and the characters that reorder or hide text.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\x9c|$)|\x1b[@-Z\\-_]",
    re.DOTALL,
)
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)


def clean(text: object) -> str:
    r"""``text`` without escape sequences, control characters and lone surrogates.

    Newlines and tabs stay. A terminal, a log viewer and Markdown can show the result as it is; what
    has a meaning in markup (``[``, ``*``) is still there and is escaped where it is shown.
    """
    plain = _CONTROL.sub("", _ESCAPES.sub("", str(text).replace("\r\n", "\n")))
    return plain.encode("utf-8", "replace").decode("utf-8")


def one_line(text: object, limit: int = 0) -> str:
    """``text`` cleaned, on one line, cut to ``limit`` characters (0: not cut) with ``...``."""
    line = " ".join(clean(text).split())
    return line if not limit or len(line) <= limit else line[: max(0, limit - 3)] + "..."


def number(value: float | None) -> str:
    """Three significant digits, exponents when needed; ``nan``, ``inf``, and ``-`` for none."""
    if value is None:
        return "-"
    if not math.isfinite(value):
        return str(float(value))
    size = abs(value)
    if size >= 1e5 or 0 < size < 1e-3:
        return f"{value:.1e}"
    return f"{value:.0f}" if size >= 1000 else f"{value:.3g}"


def human_bytes(num_bytes: float | None) -> str:
    """Bytes with a decimal unit, for example ``12.3 MB``; ``unknown`` for none."""
    if num_bytes is None or not math.isfinite(num_bytes):
        return "unknown"
    size, units = float(num_bytes), ["kB", "MB", "GB", "TB"]
    if size < 1000:
        return f"{size:.0f} bytes"
    unit = ""
    while size >= 999.5 and units:
        size, unit = size / 1000, units.pop(0)
    return f"{size:.3g} {unit}"


def human_secs(secs: float | None) -> str:
    """Seconds as ``8.1s``, ``1m02s`` or ``2h05m``; ``unknown`` for none and non-finite."""
    if secs is None or not math.isfinite(secs):
        return "unknown"
    if secs < 9.95:
        return f"{max(0.0, secs):.1f}s"
    whole = round(secs)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def share_text(start_step: int, schedule_steps: int, share_frac: float, is_whole: bool) -> str:
    """How much of the full run's ``schedule_steps`` a pilot that starts at ``start_step`` trains.

    ``share_frac``: of what is left after ``start_step``.
    """
    share = f"{100 * share_frac:.3g} %"
    if start_step:
        left = f"{schedule_steps - start_step} that are left of the full run's {schedule_steps}"
        return f"all {left}" if is_whole else f"{share} of the {left}"
    if is_whole:
        return f"all of the full run's {schedule_steps}"
    return f"{share} of the full run's {schedule_steps}"
