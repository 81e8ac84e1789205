"""Fingerprints: equal for the same run, and a readable line for everything that differs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pilot import fingerprint
from pilot.fingerprint import make_fingerprint, surveyed_sets
from pilot.fingerprint_differences import differences, without_own_code
from pilot.jsonl import parse, to_json, write_json
from pilot.user_checkpoint import files_of
from tests.trees import config_tree


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A recipe's file outside of any repository."""
    path = tmp_path / "recipe.py"
    path.write_text("x = 1\n")
    return path


def _make(module: Path, *files: Path, **sections: Any) -> dict[str, Any]:
    return make_fingerprint(config_tree(**sections), module, list(files), world_size=1)


def _git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def test_the_same_run_has_the_same_fingerprint_after_json(module: Path) -> None:
    first, second = _make(module), _make(module)
    assert first == second
    assert len(first["hash"]) == 12
    assert differences(parse(to_json(first)), second) == []


def test_what_does_not_change_the_run_is_left_out(module: Path) -> None:
    other = _make(
        module,
        gates={"strict": True},
        tracking={"uri": "x"},
        launcher={"max_restarts": 0},
        checks={"skip": ["finite"]},
        pilot={"min_peak_steps": 99, "budget_steps": 5},
        out_dir="elsewhere",
    )
    assert other == _make(module)
    assert not any("out_dir" in key or "gates" in key for key in other["config"])


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ({"optim": {"learning_rate": 0.2}}, "config optim.learning_rate: 0.1 -> 0.2"),
        ({"optim": {"max_grad_norm": 1.0}}, "config optim.max_grad_norm: null -> 1.0"),
        ({"pilot": {"data_seed": 3}}, 'config pilot.data_seed: "absent" -> 3'),
        ({"precision": "bf16"}, 'config precision: "fp32" -> "bf16"'),
        ({"recipe": {"width": [1, 2]}}, 'config recipe.width: "absent" -> [1,2]'),
    ],
)
def test_a_changed_setting_is_one_line(sections: dict[str, Any], line: str, module: Path) -> None:
    before, after = _make(module), _make(module, **sections)
    assert differences(before, after) == [line]
    assert before["hash"] != after["hash"]


def test_changed_code_and_world_size(module: Path) -> None:
    before = _make(module)
    module.write_text("x = 2\n")
    (line,) = differences(before, _make(module))
    assert line.startswith("code recipe.py: was changed (sha256 ")
    several = make_fingerprint(config_tree(), module, [], world_size=2)
    assert differences(_make(module), several) == ["world_size: 1 -> 2"]
    newer = {**several, "packages": {**several["packages"], "torch": "9.9"}}
    (line,) = differences(several, newer)
    assert line.startswith("packages torch: ") and line.endswith('-> "9.9"')


def test_data_by_name_size_and_content(module: Path, tmp_path: Path) -> None:
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    a.write_text("one\n")
    b.write_text("")
    before = _make(module, b, a)
    assert [(f["name"], f["bytes"], f["sampled"]) for f in before["data"]] == [
        ("a.jsonl", 4, False),
        ("b.jsonl", 0, False),
    ]
    assert before["data"][1]["sha256"].startswith("e3b0c44298fc1c14")  # sha256 of nothing
    a.write_text("two\n")
    (line,) = differences(before, _make(module, a, b))
    assert line.startswith("data a.jsonl: 4 bytes (sha256 ")
    assert differences(before, {**before, "data": before["data"][1:]}) == [
        "data a.jsonl: no longer read"
    ]
    assert differences({**before, "data": []}, {**before, "data": before["data"][:1]}) == [
        "data a.jsonl: was not read before"
    ]


def test_two_files_of_one_name_are_both_counted(module: Path, tmp_path: Path) -> None:
    paths = [tmp_path / name / "data.json" for name in ("train", "validation")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(path.parent.name)
    before = _make(module, *paths)
    assert differences(before, _make(module, *reversed(paths))) == []
    paths[1].write_text("changed")
    assert len(differences(before, _make(module, *paths))) == 1


def test_a_large_file_is_sampled_and_says_so(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "FULL_HASH_BYTES", 1000)
    monkeypatch.setattr(fingerprint, "_BLOCK_BYTES", 10)
    path = tmp_path / "big.bin"
    data = bytearray(5000)
    path.write_bytes(data)
    before = _make(module, path)["data"][0]
    assert before["sampled"] is True
    for place in (0, 4999):  # both ends are always in the sample
        changed = bytearray(data)
        changed[place] = 1
        path.write_bytes(changed)
        assert _make(module, path)["data"][0]["sha256"] != before["sha256"]
    path.write_bytes(data + b"\0")
    assert _make(module, path)["data"][0]["sha256"] != before["sha256"]


def test_no_absolute_path_is_inside(module: Path, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text("x")
    made = _make(
        module,
        data,
        recipe={"data": str(data), "more": [str(data)], "deep": {"path": str(data)}, "text": "a/b"},
    )
    assert str(tmp_path) not in json.dumps(made)
    assert made["config"]["recipe.data"] == "rows.jsonl"
    assert made["config"]["recipe.more"] == ["rows.jsonl"]
    assert made["config"]["recipe.deep.path"] == "rows.jsonl"
    assert made["config"]["recipe.text"] == "a/b"  # no file: it means something else


def _code(made: Mapping[str, Any]) -> tuple[object, object]:
    return made["commit"], made["code"]["repository_sha256"]


def test_the_repository_of_the_recipe(module: Path, tmp_path: Path) -> None:
    assert _code(_make(module)) == (None, None)  # no repository
    _git(tmp_path, "init", "-q")
    assert _code(_make(module)) == (None, None)  # no commit
    for name in ("other.py", "settings.yaml", "page.md"):
        (tmp_path / name).write_text("y = 1\n")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-q", "-m", "first")
    clean = _make(module)
    commit, state = _code(clean)
    assert isinstance(commit, str) and len(commit) == 40 and isinstance(state, str)
    (tmp_path / "page.md").write_text("prose is read by no run\n")
    (tmp_path / "notes.txt").write_text("is not tracked\n")
    assert differences(clean, _make(module)) == []
    (tmp_path / "settings.yaml").write_text("y = 2\n")
    changed = _make(module)
    (line,) = differences(clean, changed)
    assert line.startswith("code other tracked files of the repository: ")
    _git(tmp_path, "commit", "-q", "-a", "-m", "second")
    committed = _make(module)
    assert committed["commit"] != changed["commit"] == commit
    assert differences(changed, committed) == [] and committed["hash"] == changed["hash"]
    (tmp_path / "settings.yaml").unlink()
    assert len(differences(changed, _make(module))) == 1
    (tmp_path / ".gitignore").write_text("recipe.py\n")
    _git(tmp_path, "rm", "-q", "--cached", "recipe.py")
    assert _code(_make(module)) == (None, None)  # ignored: the repository is not the recipe's


def test_a_changed_recipe_is_told_once_by_its_name(module: Path, tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text("y = 1\n")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-q", "-m", "first")
    before = make_fingerprint(config_tree(), module, [], world_size=1, imported=["base.py"])
    assert set(before["code"]["files"]) == {"recipe.py", "base.py"}
    module.write_text("x = 2\n")
    (tmp_path / "base.py").write_text("y = 2\n")
    after = make_fingerprint(config_tree(), module, [], world_size=1, imported=["base.py"])
    lines = differences(before, after)
    assert [line.split(":")[0] for line in lines] == ["code base.py", "code recipe.py"]
    (tmp_path / "base.py").unlink()
    gone = make_fingerprint(config_tree(), module, [], world_size=1, imported=["base.py"])
    assert "code base.py: is not there any more" in differences(before, gone)


def test_pilots_own_code_and_a_file_that_is_called_like_it(tmp_path: Path) -> None:
    module = tmp_path / "pilot_sha256.py"
    module.write_text("x = 1\n")
    before = _make(module)
    module.write_text("x = 2\n")
    after = _make(module)
    after["code"] = {**after["code"], "pilot_version": "9", "pilot_sha256": "9"}
    assert len(differences(before, after)) == 3
    (line,) = without_own_code(differences(before, after))
    assert line.startswith("code pilot_sha256.py: was changed")


def test_a_long_value_is_shown_around_its_difference(module: Path) -> None:
    long = ["w" * 20] * 30
    other = [*long[:15], "changed", *long[15:]]
    (line,) = differences(
        _make(module, recipe={"names": long}), _make(module, recipe={"names": other})
    )
    assert len(line) < 300 and "changed" in line


def test_without_git_there_is_no_commit(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert _code(_make(module)) == (None, None)


def test_versions_are_known_without_importing(module: Path) -> None:
    packages = _make(module)["packages"]
    assert packages["python"].startswith("3.")
    assert {"torch", "numpy", "transformers"} <= set(packages)


def test_a_damaged_fingerprint_differs_instead_of_failing(module: Path) -> None:
    made = _make(module)
    assert differences({}, made)
    assert differences(made, {"config": None, "data": None})


def test_sets_that_no_file_holds(module: Path, tmp_path: Path) -> None:
    def of(rows: int | None, sha256: str | None) -> dict[str, Any]:
        found = {"name": "train_dataset", "rows": rows, "sha256": sha256, "sampled": False}
        write_json(tmp_path / "survey.json", {"data": [{**found, "read_secs": 0.3, "note": ""}]})
        sets = surveyed_sets(tmp_path / "survey.json")
        assert sets == [found]
        return make_fingerprint(config_tree(), module, [], world_size=1, data_sets=sets)

    before = of(30, "ab" * 32)
    assert differences(before, of(30, "ab" * 32)) == [] and before == of(30, "ab" * 32)
    assert differences(before, of(30, "ab" * 31 + "ac")) == [
        "data train_dataset: 30 rows (sha256 abababababab) -> 30 rows (sha256 abababababab)"
    ]
    assert differences(before, of(1_031, None)) == [
        "data train_dataset: 30 rows (sha256 abababababab) -> 1,031 rows (no digest)"
    ]
    assert differences(of(None, None), of(None, None)) == []
    assert before["hash"] != of(31, "ab" * 32)["hash"]


def test_a_checkpoint_counts_by_its_files_and_not_by_its_folder(
    module: Path, tmp_path: Path
) -> None:
    found = []
    for number, content in enumerate((b"w", b"w", b"v")):
        folder = tmp_path / f"runs_{number}" / f"checkpoint-{number}"
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "model.safetensors").write_bytes(content)
        recipe = {"name": "tiny", "resume_from": str(folder)}
        found.append(_make(module, *files_of(recipe), recipe=recipe))
    assert found[0]["hash"] == found[1]["hash"] != found[2]["hash"]
    assert files_of({"resume_from": str(tmp_path / "nowhere")}) == []
    assert files_of({"resume_from": "runs_0/checkpoint-0"}, tmp_path) == [
        tmp_path / "runs_0/checkpoint-0/inner/model.safetensors"
    ]
    none = _make(module, recipe={"name": "tiny", "resume_from": None})
    assert none["hash"] == _make(module, recipe={"name": "tiny"})["hash"]
