"""The answer for people: what it says, in which order, and how it fits a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from pilot.diagnose import show
from pilot.diagnose.answer import blocks, overview
from pilot.diagnose.study import UNREADABLE, Study
from pilot.series.types import GRAD_NORM, NOTE, WARN
from tests.diagnose.traces import diverged, event, series, study, trace


def text_of(made: list[RenderableType], columns: int = 80) -> str:
    out = io.StringIO()
    console = Console(file=out, width=columns, markup=False, highlight=False, emoji=False)
    for block in made:
        show.show(console, block)
    return out.getvalue()


def answer(of: Study, columns: int = 80, *, has_plot: bool = False) -> str:
    return text_of(blocks(of, columns=columns, has_plot=has_plot), columns)


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_answer_comes_in_the_order_of_the_questions() -> None:
    text = answer(diverged())
    labels = ["run.json: DIVERGED", "what happened", "also", "how sure", "look first at"]
    labels += ["smallest test", "only then  ", "cannot tell", "next   ", "  event"]
    places = [text.index(label) for label in labels]
    assert places == sorted(places)
    assert len(text.splitlines()) <= 34  # a screenful


def test_what_happened_has_the_numbers_of_the_log() -> None:
    said = flat(answer(diverged()))
    assert (
        "The loss left its level of 1 at step 410, reached 5 at step 420 and never came back: 3 at "
        "the end (step 600)." in said
    )
    assert "spikes in a row (step 210-240)" in said
    assert (
        "high: 60 points of the loss, one every 10 steps; the gradient norm rose 20 steps" in said
    )
    assert "relative update, optimizer state" in said


def test_the_table_is_aligned_and_has_the_worst_first() -> None:
    lines = answer(diverged()).splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("  event"))
    kinds = [line[2:].split("  ")[0] for line in lines[head + 1 :]]
    assert kinds == ["never recovers", "spikes in a row", "gradient norm jump"]
    assert (
        " ".join(lines[head + 1].split()) == "never recovers FAIL 410-600 never +400 %, 41 sd high"
    )
    assert "250" in lines[head + 2]
    ends = {
        line.index(word)
        for line, word in zip(lines[head + 1 :], ["FAIL", "warn", "note"], strict=True)
    }
    assert len(ends) == 1


def test_many_events_are_capped_and_the_rest_is_counted() -> None:
    many = [event("single_spike", s, s, NOTE) for s in range(1, 40)]
    many.append(event("consecutive_spikes", 50, 55, WARN))
    text = answer(study(trace([1.0] * 60), "unstable", *many, main=39))
    assert text.count("one spike") == 11
    assert "spikes in a row  warning" in text
    assert "and 28 more (28 x note); --json lists all" in text


def test_a_healthy_log_gets_few_lines_and_no_scare() -> None:
    made = trace([2.0, 1.5, 1.2, 1.0] * 20, grad_norm=[1.0] * 80, validations={"": series([1.0])})
    lines = answer(study(made, "healthy")).splitlines()
    assert lines[0].startswith("run.json: healthy. 80 points of the loss")
    assert "1 to 80" in flat(" ".join(lines))
    assert len(lines) <= 4
    assert not any(word in " ".join(lines).lower() for word in ("look first", "warning", "fail"))


def test_notes_of_a_healthy_log_are_said_to_be_without_consequence() -> None:
    notes = [event("single_spike", s, s, NOTE) for s in (7, 21)]
    text = flat(answer(study(trace([1.0] * 80), "healthy", *notes)))
    assert "without consequence: 2 x one spike (step 7, 21)" in text


@pytest.mark.parametrize(
    ("more", "lack"),
    [
        ({}, "no gradient norm was logged"),
        ({"grad_norm": [1.0] * 80}, "logging_nan_inf_filter"),
        ({"axis": "records"}, "records are counted"),
        ({"objective": "rl"}, "look at the reward"),
        ({"objective": "preference"}, "look at the reward margin and accuracy"),
        ({"steps": range(5000, 5080)}, "what came before: the log begins at step 5000"),
    ],
)
def test_what_the_log_cannot_tell(more: dict[str, object], lack: str) -> None:
    made = trace([1.0] * 80, **more)
    assert lack in flat(answer(study(made, "diverged", event("never_recovers", 40, 80), main=0)))


def test_a_nan_in_the_log_proves_that_the_filter_is_off() -> None:
    made = trace([1.0] * 79 + [float("nan")])
    text = answer(study(made, "diverged", event("nonfinite", 80, 80), main=0))
    assert "logging_nan_inf_filter" not in text
    assert "The loss is NaN at 1 of 80 points, at step 80" in flat(text)


def test_few_points_are_said_to_be_few() -> None:
    text = flat(answer(study(trace([1.0] * 5), "too_short")))
    assert "too short to judge" in text
    assert "only 5 points of the loss" in text
    assert "log more of the run" in text


def test_records_are_not_called_steps() -> None:
    made = trace([1.0] * 40 + [9.0] * 40, axis="records")
    text = flat(answer(study(made, "diverged", event("never_recovers", 41, 80), main=0)))
    assert "jumped from 1 to 9 at record 41" in text


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    text = answer(diverged(), columns)
    lines = [line for line in text.splitlines() if "python -m pilot" not in line]
    assert max(len(line) for line in lines) <= columns
    assert "never recovers" in text
    assert "python -m pilot diagnose run.json --plot out.png\n" in text  # never broken


def test_the_next_command_is_not_the_plot_that_was_drawn() -> None:
    text = answer(diverged(), has_plot=True)
    assert "--plot" not in text
    assert "python -m pilot +recipe=NAME" in text


def test_text_from_logs_is_shown_as_it_is_and_without_escapes() -> None:
    made = trace([1.0] * 80, source="[red]x[/red]\x1b[31m\x07.json", notes=("\x1b]0;t\x07[b]ok",))
    text = answer(study(made, "diverged", event("never_recovers", 40, 80), main=0))
    assert text.startswith("[red]x[/red].json: DIVERGED")
    assert "[b]ok" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_several_runs_begin_with_one_line_each() -> None:
    lost = Study(
        source="gone", path="gone", trace=None, diagnosis=UNREADABLE, error="gone: no file"
    )
    fine = study(trace([1.0] * 80), "healthy")
    lines = text_of(overview([diverged(), fine, lost], 80)).splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["run.json", "DIVERGED"],
        ["run.json", "healthy"],
        ["gone", "not"],
    ]
    assert "never recovers, step 410-600" in lines[1]
    assert "no file" in lines[3]


def test_long_paths_are_cut_at_their_front_if_they_stay_different() -> None:
    runs = [study(trace([1.0] * 80, source="x" * 60 + end), "healthy") for end in ("/a", "/b")]
    lines = text_of(overview(runs, 80)).splitlines()
    assert [line.split()[0][-4:] for line in lines[1:3]] == ["xx/a", "xx/b"]
    assert lines[1].startswith("...xxx")
    assert len(lines[1].split()[0]) == 35
    same_end = [study(trace([1.0], source=s + "x" * 60), "healthy") for s in "ab"]
    begins = [line[:9] for line in text_of(overview(same_end, 80)).splitlines() if line]
    assert [begin for begin in begins if begin[0] in "ab"] == ["axxxxxxxx", "bxxxxxxxx"]


def test_validation_sets_are_named() -> None:
    sets = {"a/b": series([1.0, 2.0, 3.0], [10, 20, 30])}
    made = trace([1.0] * 80, validations=sets)
    found = event("validation_worsening", 10, 30, WARN, series="a/b", size_frac=2.0)
    text = flat(answer(study(made, "overfitting", found, main=0)))
    assert "The validation loss (a/b) was best at step 10 (1) and is 3 at step 30 (+200 %)." in text
    assert "3 values of the validation loss (a/b)" in text
    assert "validation gets worse (a/b)" in text


def test_a_gradient_event_names_its_series() -> None:
    made = trace([1.0] * 80, grad_norm=[1.0] * 79 + [float("inf")])
    found = event("nonfinite", 80, 80, NOTE, series=GRAD_NORM)
    text = answer(study(made, "unstable", found, main=0))
    assert "The gradient norm is inf at 1 of 80 points, at step 80." in flat(text)
    assert "NaN or inf (gradient norm)" in text
