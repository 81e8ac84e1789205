"""The answer for people, as blocks that fit a terminal: the run, why, what next, the events.

Pure: nothing is printed here. Every word from a log goes through ``one_line`` and stands in a
``Text``, which rich never reads as markup. Colours only repeat what words say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from pilot.diagnose.events import event_lines, name, steps
from pilot.diagnose.limits import limits
from pilot.diagnose.next_step import next_steps
from pilot.diagnose.numbers import first_value, last_level, num_points, span
from pilot.diagnose.plain import counted, happened, state_words, step_word
from pilot.diagnose.study import Study, by_severity, main_event, ordered
from pilot.diagnose.sure import basis, how_sure
from pilot.readers.ending import ENDS
from pilot.report.blocks import Col, pairs, table
from pilot.report.words import number, one_line
from pilot.series.advice import advice
from pilot.series.limits import FEW_MAX
from pilot.series.types import LOSS, NOTE, Event, Series, Trace

_STYLES = {"healthy": "bold green", "unstable": "bold red", "diverged": "bold red"}
_STYLES |= {"dead": "bold red"}
_MAX_LIMITS, _MAX_NOTES, _MAX_PLACES = 5, 3, 4
_LOSSES = (ENDS, "the file ends", "the gzip stream", "a line longer")  # notes that no answer hides
_NARROW_COLUMNS = 60  # below, labels stand above their text
_LABEL = " " * 17  # as wide as the longest label and its borders


def title(study: Study) -> Text:
    """``path: DIVERGED``; states with an alarm are in capitals."""
    word = state_title(study)
    return Text.assemble(
        (f"{one_line(study.source)}: ", "bold"), (word, _STYLES.get(study.diagnosis.state, "bold"))
    )


def state_title(study: Study) -> str:
    """The state in plain English; capitals mean alarm. Few points are not called healthy."""
    word = state_words(study.diagnosis.state, levelled=study.diagnosis.levelled)
    if study.diagnosis.state == "healthy" and study.trace and _most(study.trace) <= FEW_MAX:
        return "no trouble seen"
    if study.diagnosis.state == "too_short" and _lacks_loss(study.trace):
        return "no loss in it"
    return word.upper() if study.diagnosis.alarm else word


def _lacks_loss(trace: Trace | None) -> bool:
    """Enough steps, and neither a training nor a validation loss: no matter of length."""
    if trace is None or LOSS in trace.train or trace.validations:
        return False
    return ((span(trace) or (0,))[0]) > FEW_MAX


def overview(studies: Sequence[Study], columns: int) -> list[RenderableType]:
    """One line per run: which (a long path from its end), its state, what happened."""
    sources = _shortened([one_line(study.source) for study in studies], columns // 2 - 5)
    made = table(Col("run", may_wrap=True), Col("state"), Col("what happened", may_wrap=True))
    for study, source in zip(studies, sources, strict=True):
        state = Text(state_title(study), style=_STYLES.get(study.diagnosis.state, ""))
        made.add_row(Text(source), state, Text(_in_short(study)))
    return [made, Text("")]


def _shortened(names: Sequence[str], limit: int) -> list[str]:
    """Names cut at the front, unless that makes two of them equal."""
    cut = [n if len(n) <= limit else f"...{n[len(n) - limit + 3 :]}" for n in names]
    return cut if len(set(cut)) == len(set(names)) else list(names)


def _in_short(study: Study) -> str:
    """A run in a few words: the deciding event and where, or how much log there is."""
    trace = study.trace
    if trace is None:
        return one_line(summary(study), 60)
    event = main_event(study)
    if event is None:
        covered, loss = span(trace), trace.train.get(LOSS)
        num = num_points(loss) if loss is not None else covered[0] if covered else 0
        text = counted(num, "point") if num else "no point"
        return text if loss is None else f"{text}, loss{_from_to(loss)}"
    return f"{name(event, trace)}, {step_word(trace)} {steps(event)}"


def blocks(study: Study, *, columns: int, has_plot: bool) -> list[RenderableType]:
    """The whole answer for one run: few lines if it is healthy, a screenful if not.

    ``columns`` is the width of the terminal; commands are never broken. Nothing for a run that
    could not be read: that is said on stderr.
    """
    if study.trace is None:
        return []
    if study.diagnosis.state == "healthy" and main_event(study) is None:
        return _healthy(study, study.trace)
    return _trouble(study, study.trace, columns, has_plot)


def _healthy(study: Study, trace: Trace) -> list[RenderableType]:
    lacks = ", ".join(limit.lack for limit in limits(trace, study.diagnosis)[:_MAX_LIMITS])
    made: list[RenderableType] = [Text.assemble(title(study), f". {_capital(summary(study))}.")]
    events = study.diagnosis.events
    harmless = [event for event in events if not _worth_a_look(event)]
    if harmless:
        made.append(_indented(f"without consequence: {_kinds(harmless, trace)}"))
    told = [happened(event, trace) for event in events if _worth_a_look(event)]
    made += [_indented(f"worth a look: {text}") for text in told[:_MAX_PLACES]]
    if lacks:
        made.append(_indented(f"limits of this log: {lacks}"))
    return made + [_indented(text) for text in _of_the_file(trace)]


def _of_the_file(trace: Trace) -> list[str]:
    """How the file ends and what of it is not read: a healthy curve does not show that."""
    found = [note for note in trace.notes if note.startswith(_LOSSES)][:_MAX_NOTES]
    before = "; the loss shows no trouble before it" if LOSS in trace.train else ""
    return [one_line(note, 300) + (before if note.startswith(ENDS) else "") for note in found]


def _worth_a_look(event: Event) -> bool:
    """A note on what did not pass, or what the log is too short to follow."""
    is_followed = not event.is_open or event.recovered_step is not None
    return not is_followed or event.kind in ("grad_norm_trend", "no_progress")


def _most(trace: Trace) -> int:
    series = [trace.train[LOSS]] if LOSS in trace.train else trace.validations.values()
    return max((num_points(one) for one in series), default=0)


def _trouble(study: Study, trace: Trace, columns: int, has_plot: bool) -> list[RenderableType]:
    indent = _LABEL if columns >= _NARROW_COLUMNS else "    "
    lines = [f"{indent}{one_line(line)}" for line in next_steps(study, has_plot)]
    lines[0] = f"  next{lines[0][6:]}" if indent == _LABEL else f"  next\n{lines[0]}"
    commands = [Text("\n".join(lines), no_wrap=True)]
    made = [title(study), facts(_rows(study, trace), columns), *commands]
    if study.diagnosis.events:
        made += [Text(""), *event_lines(ordered(study), trace, columns)]
    return made


def _rows(study: Study, trace: Trace) -> list[tuple[str, str]]:
    event, events = main_event(study), study.diagnosis.events
    rows = [("what happened", f"{_capital(summary(study))}.")]
    others = [e for e in events if e is not event and e.severity != NOTE]
    if others:
        rows.append(("also", _kinds(by_severity(others), trace)))
    if event is not None or study.diagnosis.state != "too_short":
        rows.append(("how sure", how_sure(event, trace)))
    if event is not None:
        row = advice(event.kind, event.hint)
        rows += [("look first at", row.look_first), ("smallest test", row.test)]
        rows.append(("only then", row.then))
    found = limits(trace, study.diagnosis)[:_MAX_LIMITS]
    rows += [("cannot tell", limit.open_question) for limit in found]
    return rows + [("the file", one_line(note, 300)) for note in trace.notes[:_MAX_NOTES]]


def facts(rows: Sequence[tuple[str, str]], columns: int) -> RenderableType:
    """Label and text side by side, or one under the other on a narrow terminal."""
    if columns >= _NARROW_COLUMNS:
        return pairs(rows)
    lines: list[RenderableType] = []
    last = ""
    for label, text in rows:
        lines += [Text(f"  {label}", style="bold")] if label != last else []
        lines.append(_indented(text, 4))
        last = label
    return Group(*lines)


def _indented(text: str, columns: int = 2) -> RenderableType:
    return Padding(Text(text), (0, 0, 0, columns))


def summary(study: Study) -> str:
    """One line on a run, without its state."""
    trace = study.trace
    if trace is None:
        lines = study.error.splitlines()
        return one_line(lines[0].removeprefix(f"{study.path}: ")) if lines else ""
    event = main_event(study)
    if event is not None:
        return happened(event, trace)
    return _course(trace)


def _course(trace: Trace) -> str:
    """From where to where it went: points, steps, loss."""
    covered, loss = span(trace), trace.train.get(LOSS)
    if covered is None:
        return "no point at all"
    if trace.axis == "records":
        text = counted(_most(trace) if loss or trace.validations else covered[0], "point")
        text += f"{' of the loss' if loss else ''} (no step numbers)"
    else:
        text = f"{basis(trace)}, {step_word(trace)}s {covered[1]} to {covered[2]}"
    return text if loss is None else f"{text}, from{_from_to(loss)}"


def _from_to(loss: Series) -> str:
    return f" {number(first_value(loss))} to {number(last_level(loss))}"


def _kinds(events: Sequence[Event], trace: Trace) -> str:
    """Kinds with their places: ``3 x one spike (at step 12, 40, 77)``."""
    parts, names = [], [name(event, trace) for event in events]
    for kind, count in Counter(names).items():
        same = [steps(event) for event, own in zip(events, names, strict=True) if own == kind]
        places = ", ".join([*same[:_MAX_PLACES], *(["..."] if count > _MAX_PLACES else [])])
        times = f"{count} x " if count > 1 else ""
        parts.append(f"{times}{kind} ({step_word(trace)} {places})")
    return "; ".join(parts)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
