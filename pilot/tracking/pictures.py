"""Figures small enough for the note: a run's page shows pictures at their full size, however wide.

A wider one pushes the facts about the run off the page; a width given in Markdown or HTML is
ignored. The whole figure lies among the artifacts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

MAX_WIDTH = 840  # the note's column on a page of 1600 pixels
FOLDER = "figures/note"


def for_note(figures: Mapping[str, Path], out_dir: Path) -> dict[str, Path]:
    """The figures to show, by artifact name: the given one, or a smaller copy in ``out_dir``.

    A picture that cannot be read is shown as it is.
    """
    return dict(_small(name, path, out_dir) for name, path in figures.items())


def _small(name: str, path: Path, out_dir: Path) -> tuple[str, Path]:
    from PIL import Image

    copy = out_dir / path.name
    try:
        with Image.open(path) as picture:
            width, height = picture.size
            if width <= MAX_WIDTH:
                return name, path
            size = (MAX_WIDTH, max(1, round(height * MAX_WIDTH / width)))
            picture.resize(size, Image.Resampling.LANCZOS).save(copy)
    except (OSError, ValueError, SyntaxError):  # Pillow's word for a damaged PNG is the last
        return name, path
    return f"{FOLDER}/{path.name}", copy
