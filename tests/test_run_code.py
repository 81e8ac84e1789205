"""Which files of code a run is made of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pilot
from pilot.run_code import code_of
from tests.conftest import environment

LOOK = """
import json, sys
from pathlib import Path
sys.path[:0] = [{script!r}, {library!r}]
import importlib.util, types
import train, numpy, pilot.cli.words
found = importlib.util.spec_from_file_location("made", {library!r} + "/torchinductor_me/made.py")
sys.modules["made"] = importlib.util.module_from_spec(found)
sys.modules["loose"] = types.ModuleType("loose")  # as compilers make them: without a spec
sys.modules["loose"].__file__ = {script!r} + "/loose.py"
from pilot.run_code import imported_files
print(json.dumps(imported_files(Path({script!r}) / "train.py")))
"""


def test_their_own_modules_and_no_others(tmp_path: Path) -> None:
    script, library = tmp_path / "scripts", tmp_path / "src"
    for folder in (script, library / "own" / "data"):
        folder.mkdir(parents=True)
    (library / "own" / "__init__.py").write_text("")
    (library / "own" / "data" / "rows.py").write_text("import json\n")
    (script / "base.py").write_text("from own.data import rows\n")
    (script / "train.py").write_text("import base\n")
    (script / "unused.py").write_text("")
    (library / "torchinductor_me").mkdir()
    (library / "torchinductor_me" / "made.py").write_text("")
    (script / "loose.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", LOOK.format(script=str(script), library=str(library))],
        env={**environment(), "PYTHONPATH": str(Path(pilot.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stdout)
    assert names == ["../src/own/__init__.py", "../src/own/data/rows.py", "base.py"]
    code, _ = code_of(script / "train.py", names)
    assert list(code["files"]) == sorted(["train.py", *names])
    moved = tmp_path / "elsewhere"
    tmp_path.joinpath("src").rename(moved)
    found = {names[1]: moved / "own/data/rows.py"}
    again, _ = code_of(script / "train.py", names, found)
    assert again["files"][names[1]] == code["files"][names[1]]
    assert again["files"][names[0]] == "missing"
