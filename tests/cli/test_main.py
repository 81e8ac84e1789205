"""How failures become exit codes."""

from __future__ import annotations

import pytest

from pilot.cli import main as entry
from pilot.errors import ArmCrashed, ExitCode, UsageError


def _raising(error: BaseException) -> object:
    def dispatch(given: list[str]) -> int:
        raise error

    return dispatch


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("wrong"), 2, "pilot: wrong\n"),
        (ArmCrashed("baseline", "killed", "log.txt"), 1, "pilot: arm 'baseline' ended"),
        (KeyboardInterrupt(), 130, "pilot: interrupted\n"),
        (ValueError("inside"), 1, "this is a fault of pilot itself"),
    ],
)
def test_every_failure_has_its_code(
    error: BaseException,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(entry, "_dispatch", _raising(error))
    assert entry.main(["x"]) == code
    written = capsys.readouterr().err
    assert message in written
    assert ("Traceback" in written) == isinstance(error, ValueError)


@pytest.mark.parametrize("code", list(ExitCode))
def test_a_verdicts_code_is_passed_on(code: ExitCode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "_dispatch", lambda given: code)
    assert entry.main([]) == int(code)
