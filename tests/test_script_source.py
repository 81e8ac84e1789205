"""What of a script counts for its digest: its code, not its looks, and not pilot's callback."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilot.script_source import source_digest

PLAIN = """
import torch
from transformers import Trainer

def build_trainer():
    trainer = Trainer(model=make(), args=ARGS)
    return trainer
"""
SAME = {
    "comments": PLAIN.replace("    return", "    # as it is\n\n    return"),
    "formatting": PLAIN.replace("make(), args=ARGS", "make(),\n        args = ARGS,\n    "),
    "in the call": PLAIN.replace("import torch", "import pilot\nimport torch").replace(
        "args=ARGS", "args=ARGS, callbacks=[pilot.PilotCallback(verdict='outputs/a')]"
    ),
    "added": PLAIN.replace("import torch", "import torch\nfrom pilot import PilotCallback").replace(
        "    return", "    trainer.add_callback(PilotCallback('records'))\n    return"
    ),
    "with another": PLAIN.replace("import torch", "import pilot, torch").replace(
        "    return", "    trainer.add_callback(pilot.PilotCallback(allow=['code']))\n    return"
    ),
}
SAME |= {
    "another name": PLAIN.replace(
        "import torch", "import torch\nfrom pilot import PilotCallback as Bound"
    ).replace("args=ARGS", "args=ARGS, callbacks=[Bound(verdict='a')]"),
    "an empty list": PLAIN.replace("args=ARGS", "args=ARGS, callbacks=[]"),
    "under a condition": PLAIN.replace(
        "    return",
        "    if rank == 0:\n        import pilot\n"
        "        trainer.add_callback(pilot.PilotCallback('a'))\n    return",
    ),
}
OTHER = {
    "a number": PLAIN.replace("ARGS", "ARGS2"),
    "a callback of their own": PLAIN.replace("args=ARGS", "args=ARGS, callbacks=[Mine()]"),
    "an added callback": PLAIN.replace(
        "    return", "    trainer.add_callback(Mine())\n    return"
    ),
    "an import": PLAIN.replace("import torch", "import torch, os"),
    "a relative import": PLAIN.replace("import torch", "import torch\nfrom .pilot import x"),
}


def digest(folder: Path, text: str, name: str = "train.py") -> str:
    (folder / name).write_bytes(text.encode("utf-8", errors="surrogateescape"))
    return source_digest(folder / name)


@pytest.mark.parametrize("kind", SAME)
def test_it_stays_the_same_script(kind: str, tmp_path: Path) -> None:
    assert digest(tmp_path, SAME[kind]) == digest(tmp_path, PLAIN)


@pytest.mark.parametrize("kind", OTHER)
def test_it_is_another_script(kind: str, tmp_path: Path) -> None:
    assert digest(tmp_path, OTHER[kind]) != digest(tmp_path, PLAIN)


def test_beside_their_own_callbacks_and_with_other_folders(tmp_path: Path) -> None:
    own = PLAIN.replace("args=ARGS", "args=ARGS, callbacks=[Mine()]")
    both = own.replace("[Mine()]", "[Mine(), pilot.PilotCallback(verdict=X)]")
    assert digest(tmp_path, both) == digest(tmp_path, own)
    appended = own.replace("    return", "    mine.append(pilot.PilotCallback('a'))\n    return")
    assert digest(tmp_path, appended) == digest(tmp_path, own)
    kept = [PLAIN + f"\nBOUND = PilotCallback({words})\n" for words in ("'a'", "verdict='b'")]
    assert digest(tmp_path, kept[0]) == digest(tmp_path, kept[1]) != digest(tmp_path, PLAIN)


def test_what_is_no_python_counts_by_its_bytes(tmp_path: Path) -> None:
    for name, text in (("train.py", "def ("), ("train.py", "x = '\0'"), ("kernel.so", "x = 1")):
        assert digest(tmp_path, text, name) != digest(tmp_path, text + "\n# more", name)
        assert digest(tmp_path, text, name) == digest(tmp_path, text, name)
    with pytest.raises(OSError, match="gone"):
        source_digest(tmp_path / "gone.py")
