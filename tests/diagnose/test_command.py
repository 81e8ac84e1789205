"""The word itself: exit codes, what goes to which stream, and a terminal that goes away."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from pilot.cli.main import main
from pilot.diagnose.run import Options, diagnose, plot_paths
from pilot.errors import UsageError
from tests.conftest import RunPilot
from tests.diagnose.test_contract import check_contract, strict
from tests.diagnose.traces import healthy_loss, write_state


class Answer(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def answer(
    logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Answer]:
    """The command line without a process of its own."""
    monkeypatch.chdir(logs)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words: str) -> Answer:
        code = main(["diagnose", *words])
        return Answer(code, *capsys.readouterr())

    return run


def test_a_healthy_log_ends_with_0(logs: Path, run_pilot: RunPilot) -> None:
    done = run_pilot("diagnose", "healthy.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("healthy.json: healthy. 120 points of the loss, one every step")
    assert len(done.stdout.splitlines()) <= 3
    assert "\x1b" not in done.stdout


def test_an_alarm_ends_with_3_and_says_where(logs: Path, run_pilot: RunPilot) -> None:
    done = run_pilot("diagnose", "nan.json")
    assert (done.returncode, done.stderr) == (3, "")
    said = " ".join(done.stdout.split())
    assert said.startswith("nan.json: DIVERGED")
    assert "The loss is NaN at 20 of 100 points, first at step 81, last at 100" in said
    assert not any(line != line.rstrip() for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("paths", "code"),
    [
        (["healthy.json"], 0),
        (["healthy.json", "missing.json"], 2),
        (["text.txt"], 2),
        (["empty.json"], 2),
        (["missing.json", "nan.json", "healthy.json"], 3),
    ],
)
def test_exit_codes(
    paths: list[str],
    code: int,
    logs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(logs)
    assert diagnose(Options(paths=tuple(paths), as_json=True)) == code
    tree = strict(capsys.readouterr().out)
    check_contract(tree)
    assert len(tree["runs"]) == len(paths)


def test_all_that_is_wrong_is_said_at_once_beside_the_answers(
    logs: Path, answer: Callable[..., Answer]
) -> None:
    done = answer("missing.json", "healthy.json", "text.txt")
    assert done.returncode == 2
    assert "missing.json" in done.stderr
    assert "text.txt" in done.stderr
    assert "remedy" in done.stderr
    assert "Traceback" not in done.stderr
    states = [line.split()[1] for line in done.stdout.splitlines()[1:4]]
    assert states == ["not", "healthy", "not"]


def test_json_alone_goes_to_stdout(logs: Path, run_pilot: RunPilot) -> None:
    done = run_pilot("diagnose", "nan.json", "missing.json", "--json", "--plot", "out.png")
    assert done.returncode == 3
    tree = json.loads(done.stdout)
    check_contract(tree)
    assert [run["state"] for run in tree["runs"]] == ["diverged", "unreadable"]
    assert "missing.json" in done.stderr
    assert "plot: out.png" in done.stderr
    assert (logs / "out.png").is_file()


def test_logs_of_the_same_name_are_told_apart(logs: Path, answer: Callable[..., Answer]) -> None:
    done = answer("a/trainer_state.json", "b/trainer_state.json", "--json")
    sources = [run["source"] for run in json.loads(done.stdout)["runs"]]
    assert sources == ["a/trainer_state.json", "b/trainer_state.json"]


def test_each_run_gets_its_own_picture(logs: Path, answer: Callable[..., Answer]) -> None:
    done = answer("healthy.json", "missing.json", "nan.json", "--plot", "x.png")
    assert done.returncode == 3
    assert sorted(path.name for path in logs.glob("*.png")) == ["x.2.png", "x.png"]
    assert plot_paths(Path("d/x.png"), 3) == [Path("d/x.png"), Path("d/x.2.png"), Path("d/x.3.png")]


@pytest.mark.parametrize("plot", ["nowhere/out.png", ".", "out.pdf"])
def test_a_picture_that_cannot_be_written_costs_no_answer(
    plot: str, logs: Path, answer: Callable[..., Answer]
) -> None:
    done = answer("healthy.json", "--plot", plot)
    assert done.returncode == 2
    assert done.stdout.startswith("healthy.json: healthy")
    assert done.stderr.startswith(f"warning: {plot}")
    assert len(done.stderr.splitlines()) == 1


def test_checking_the_picture_leaves_no_empty_file(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diagnose(Options(paths=(str(logs / "missing.json"),), plot=logs / "out.png"))
    assert not (logs / "out.png").exists()


def test_a_format_that_does_not_exist_is_refused_at_once(logs: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'megatron'") as caught:
        diagnose(Options(paths=("missing.json",), format_name="megatorn"))
    assert "trainer_state" in str(caught.value)


def test_a_format_can_be_forced(logs: Path, answer: Callable[..., Answer]) -> None:
    done = answer("healthy.json", "--format", "trainer_state", "--json")
    assert json.loads(done.stdout)["runs"][0]["format"] == "trainer_state"
    assert answer("healthy.json", "--format", "megatron").returncode == 2
    again = "python -m pilot diagnose nan.json --format trainer_state --plot out.png\n"
    assert again in answer("nan.json", "--format", "trainer_state").stdout


def test_names_that_are_hostile_to_a_terminal(logs: Path, answer: Callable[..., Answer]) -> None:
    name = "[red]\x1b[31m bold.json"
    write_state(logs / name, healthy_loss())
    done = answer(name)
    assert done.returncode == 0
    assert done.stdout.startswith("[red] bold.json: healthy")
    assert "\x1b" not in done.stdout + done.stderr


def test_steps_beyond_31_bits(logs: Path, answer: Callable[..., Answer]) -> None:
    begin = 2**40
    rows = [{"step": begin + i, "loss": v} for i, v in enumerate(healthy_loss())]
    (logs / "big.json").write_text(json.dumps({"log_history": rows}), encoding="utf-8")
    (run,) = json.loads(answer("big.json", "--json").stdout)["runs"]
    assert (run["first_step"], run["last_step"]) == (begin, begin + 119)
    assert answer("big.json", "--plot", "big.png").returncode == 0
    assert (logs / "big.png").is_file()


def test_the_help_names_the_exit_codes(run_pilot: RunPilot) -> None:
    done = run_pilot("diagnose", "--help")
    assert done.returncode == 0
    for text in ("--json", "--plot out.png", "--format NAME", "--tracking-uri URI", "3 an alarm"):
        assert text in " ".join(done.stdout.split())
    assert run_pilot("diagnose").returncode == 2
    assert "diagnose PATH ... [--json]" in run_pilot("--help").stdout
