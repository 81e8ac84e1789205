from __future__ import annotations

from pathlib import Path

import numpy as np

from pilot.tracking.pictures import MAX_WIDTH, for_note


def _write(path: Path, width: int) -> Path:
    from matplotlib.image import imsave

    imsave(path, np.zeros((width // 2, width, 3)))
    return path


def test_a_wide_figure_gets_a_smaller_copy(tmp_path: Path) -> None:
    from matplotlib.image import imread

    small, wide = _write(tmp_path / "s.png", 400), _write(tmp_path / "w.png", 1200)
    (tmp_path / "out").mkdir()
    shown = for_note({"figures/s.png": small, "figures/w.png": wide}, tmp_path / "out")
    assert list(shown) == ["figures/s.png", "figures/note/w.png"]
    assert shown["figures/s.png"] == small
    assert imread(shown["figures/note/w.png"]).shape[:2] == (MAX_WIDTH // 2, MAX_WIDTH)
    again = for_note({"figures/w.png": wide}, tmp_path)
    copies = (shown["figures/note/w.png"], tmp_path / "w.png")
    assert again == {"figures/note/w.png": tmp_path / "w.png"}
    assert copies[0].read_bytes() == copies[1].read_bytes()  # sent once: the bytes are the same


def test_a_damaged_figure_is_shown_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(b"\x89PNG")
    assert for_note({"figures/x.png": path}, tmp_path) == {"figures/x.png": path}
    assert for_note({}, tmp_path) == {}
