"""What a user gets who installs the wheel: settings, recipes and data inside the package."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (path,) = out.glob("pilot_run-*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and, by a path, its dependencies."""
    home = tmp_path_factory.mktemp("env")
    venv.create(home, with_pip=False)
    purelib = home / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*pip, str(purelib), str(wheel)], check=True, capture_output=True)
    (purelib / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return home / "bin" / "python"


def _run(python: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [str(python), *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_the_wheel_holds_what_is_needed_and_no_scratch(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in (
        "pilot/__main__.py",
        "pilot/conf/config.yaml",
        "pilot/conf/recipe/llama_ft.yaml",
        "pilot/recipes/llama_ft.py",
        "pilot/recipes/sine_mlp.py",
        "pilot/recipes/assets/pairs/train.jsonl.gz",
        "pilot/recipes/assets/llama_1m/model.safetensors",
        "pilot/recipes/assets/llama_1m/tokenizer.json",
    ):
        assert name in names
    assert not [name for name in names if name.split("/")[0] in ("conf", "recipes", "tests")]
    assert not [
        name for name in names if name.startswith("pilot/recipes/assets/") and ".py" in name
    ]


def test_it_works_from_an_empty_directory(python: Path, tmp_path: Path) -> None:
    done = _run(python, tmp_path, "-c", "import pilot; print(pilot.__file__)")
    assert Path(done.stdout.strip()).is_relative_to(python.parent.parent)
    done = _run(python, tmp_path, "-m", "pilot", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "llama_ft" in done.stdout
    done = _run(python, tmp_path, "-m", "pilot", "--cfg", "job", "+recipe=sine_mlp")
    assert done.returncode == 0
    assert yaml.safe_load(done.stdout)["recipe"]["name"] == "sine_mlp"
    done = _run(python, tmp_path, "-m", "pilot", "+recipe=sine_mlp", "pilot.seed=x")
    assert done.returncode == 2
    assert "recipe" not in done.stderr  # its module was found inside the package
