"""What a person sees: headless Chromium against a real ``mlflow server`` over a store that pilot
filled, started by ``make ui``'s own script.

MLflow 3.17.2 logs two errors by itself, also on the pages of an experiment that pilot never
touched: it asks for ``users/current``, which a server without accounts answers with 404, and its
charts make the browser say ``ResizeObserver loop``. Nothing else is ignored. ``PILOT_SHOTS=DIR``
keeps the pictures.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pilot.folder import PilotFolder, read_json
from pilot.records import StepRecord
from pilot.report.figures import draw
from pilot.tracking import pages
from pilot.tracking.project import project
from pilot.view import PilotView, load
from tests.tracking.browser import NAMES, Browser, find_chromium
from tests.tracking.pilots import TITLES, five_arms, write_judged

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_chromium() is None, reason=f"no browser: neither of {', '.join(NAMES)} is installed"
    ),
]
_OF_MLFLOW = ("/mlflow/users/current", "ResizeObserver loop completed with undelivered")
_ROWS = """[...document.querySelectorAll('.ag-row')]
  .filter(row => row.querySelector('a[href*="/runs/"]'))
  .sort((a, b) => a.getAttribute('row-index') - b.getAttribute('row-index'))"""
_NAMES = f"{_ROWS}.map(row => row.querySelector('a[href*=\"/runs/\"]').innerText)"
_COLOURS = f"{_ROWS}.map(row => row.querySelector('input[type=color]').value)"
_BUTTONS = "[...document.querySelectorAll('button')]"
_LINKS = "[...document.querySelectorAll('a')]"
_CARDS = "[...document.querySelectorAll('[data-testid=experiment-view-compare-runs-card]')]"


class Shown(NamedTuple):
    """A server over two pilots; of the newest ``ids`` are experiment and parent run."""

    server: str
    said: list[str]
    ids: tuple[str, str]
    figure: str


def _late_nan(record: StepRecord) -> StepRecord:
    if record.step < 40:
        return record
    return dataclasses.replace(record, loss=math.nan, finite_loss=False)


def _send(folder: Path, name: str, view: PilotView, uri: str = "", experiment: str = "") -> str:
    tracking = {
        "uri": uri or f"sqlite:///{folder}/outputs/mlflow.db",
        "experiment": experiment or None,
        "log_text": False,
    }
    tree = {**view.config, "tracking": tracking}
    root = write_judged(folder / name, view, tree)
    draw(load(root), read_json(PilotFolder(root).verdict), PilotFolder(root).figures)
    result = project(root)
    assert result.status == "sent", result.lines
    return result.run_id


@pytest.fixture(scope="module")
def shown(empty_store: Path) -> Iterator[Shown]:
    """``make ui`` over a GO and a newer NO-GO."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "outputs").mkdir()
        shutil.copy(empty_store, folder / "outputs")
        _send(folder, "go", five_arms())
        newest = _send(folder, "no_go", five_arms(last_step=41, edit=_late_nan))
        command = [sys.executable, "-m", "pilot.tracking.ui", "--port", "5170"]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        process = subprocess.Popen(
            command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, bufsize=1
        )
        assert process.stdout is not None
        said: list[str] = []
        try:
            while not said or not said[-1].startswith("Ctrl-C"):
                line = process.stdout.readline()
                assert line, said
                said.append(line.rstrip("\n"))
            server = said[0].split(" on ")[1].split(" (")[0]
            experiment = said[1].split("/experiments/")[1].split("/")[0]
            (figure,) = (folder / "no_go" / "figures").glob("*.png")
            yield Shown(server, said, (experiment, newest), figure.name)
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
            assert (process.wait(timeout=60), rest) == (0, "")
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(f"{server}/health", timeout=5)


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the pictures lie."""
    folder = Path(os.environ.get("PILOT_SHOTS") or tmp_path_factory.mktemp("shots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def one_browser(shown: Shown, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser whose visitor has closed the panel that a first visit opens."""
    browser = Browser(tmp_path_factory.mktemp("profile"))
    try:
        browser.open(f"{shown.server}/{pages.run_page(*shown.ids)}")
        close = f"{_BUTTONS}.find(b => b.getAttribute('aria-label') === 'Close')"
        browser.click(close)
        yield browser
    finally:
        browser.close()


@pytest.fixture
def browser(one_browser: Browser) -> Iterator[Browser]:
    """The browser; at the end of the test its console must hold no error but MLflow's own."""
    one_browser.errors.clear()
    yield one_browser
    own = [e for e in one_browser.errors if not any(known in e for known in _OF_MLFLOW)]
    assert own == []


def _expand_newest(browser: Browser) -> None:
    """Show the newest pilot's arms in the run list; MLflow remembers what was expanded."""
    count = browser.wait_for(f"{_NAMES}.length")
    if count == 2:
        browser.click(f"{_ROWS}[0].querySelector('[col-id*=\"Run Name\"] button')")
    browser.wait_for(f"{_NAMES}.length === 7")


def test_the_script_says_the_address_of_the_newest_pilot(shown: Shown) -> None:
    page = pages.run_page(*shown.ids)
    assert shown.said[1] == f"NO-GO · e4f5a6b: {shown.server}/{page}"
    assert shown.said[2] == f"its arms: {shown.server}/{pages.arms_page(*shown.ids)}"
    assert shown.said[3].startswith(f"all pilots: {shown.server}/#/experiments/{shown.ids[0]}/runs")


def test_the_run_list_shows_the_verdicts_and_under_them_the_arms(
    shown: Shown, browser: Browser, shots: Path
) -> None:
    browser.open(f"{shown.server}/{pages.list_page(shown.ids[0])}")
    browser.wait_for_text("matching runs")
    both = ["NO-GO · e4f5a6b", "GO · e4f5a6b"]
    browser.wait_for(f"{_NAMES}.length === 2")
    assert browser.evaluate(_NAMES) == both
    browser.wait_for_text("One row per python -m pilot, verdict first")
    _expand_newest(browser)
    assert browser.evaluate(_NAMES) == [both[0], *TITLES, both[1]]
    colours = browser.evaluate(_COLOURS)
    assert (colours[0], colours[1], colours[6]) == ("#d32f2f", "#000000", "#2e7d32")
    assert len(set(colours[1:6])) == 5
    browser.screenshot(shots / "list.png")


def test_the_saved_view_shows_the_verdicts_columns(
    shown: Shown, browser: Browser, shots: Path
) -> None:
    """A private format: should MLflow change it, this test goes, and nothing else."""
    browser.open(f"{shown.server}/{pages.view_page(shown.ids[0])}")
    _expand_newest(browser)
    browser.wait_for_text("optim.learning_rate 0.003 -> 0.001")
    browser.screenshot(shots / "view.png")
    heads = "[...document.querySelectorAll('.ag-header-cell')].map(h => h.innerText.trim())"
    for name in ("pilot.verdict", "pilot.word", "pilot/final_loss", "pilot.changed", "pilot.why"):
        assert name in browser.evaluate(heads)


def test_the_parents_page_says_it_in_two_lines_and_then_in_tables(
    shown: Shown, browser: Browser, shots: Path
) -> None:
    browser.open(f"{shown.server}/{pages.run_page(*shown.ids)}")
    browser.wait_for_text("Show more")
    browser.screenshot(shots / "parent_folded.png")
    visible = browser.text()
    assert "NO-GO — " in visible and "Next: " in visible and "compare arms" in visible
    facts = visible.split("Child runs")[1]
    places = [facts.index(title) for title in TITLES]
    assert places == sorted(places)
    browser.click(f"{_BUTTONS}.find(b => b.innerText === 'Show more')")
    browser.wait_for("document.querySelector('img[src*=get-artifact]').complete")
    lines = browser.evaluate("document.querySelector('pre').innerText").split("\n")
    assert lines[0].split() == ["gate", "status", "evidence"]
    assert lines[1].startswith("finite        FAIL")
    head = next(i for i, line in enumerate(lines) if line.startswith("arm "))
    assert lines[head].split() == ["arm", "changed", "final", "loss", "difference", "result"]
    shown_arms = [line.split("  ")[0] for line in lines[head + 1 : head + 6]]
    assert tuple(shown_arms) == TITLES
    overflow = (
        "document.querySelector('pre').scrollWidth > document.querySelector('pre').clientWidth"
    )
    assert not browser.evaluate(overflow)
    widths = "[...document.querySelectorAll('pre, img[src*=get-artifact]')].map(e => e.offsetWidth)"
    assert len(browser.evaluate(widths)) == 2
    assert max(browser.evaluate(widths)) <= 870  # beside the facts about the run
    assert browser.evaluate("document.querySelector('img[src*=get-artifact]').naturalWidth") == 840
    browser.screenshot(shots / "parent.png")


def test_the_link_of_the_note_opens_the_charts_of_five_arms_in_order(
    shown: Shown, browser: Browser, shots: Path
) -> None:
    browser.open(f"{shown.server}/{pages.run_page(*shown.ids)}")
    link = f"{_LINKS}.find(a => a.innerText === 'compare arms')"
    address = browser.wait_for(f"{link} && {link}.href")
    assert address == f"{shown.server}/{pages.arms_page(*shown.ids)}"
    browser.open(address)
    browser.wait_for_text("5 matching runs")
    browser.wait_for(f"{_NAMES}.length === 5")
    assert tuple(browser.evaluate(_NAMES)) == TITLES
    card = f"{_CARDS}.find(c => c.innerText.startsWith('pilot/final_loss'))"
    bars = f"{card}.querySelectorAll('.barlayer .point').length"
    browser.wait_for(f"{card} && {bars} >= 3")
    browser.screenshot(shots / "arms.png")
    sections = f"{_BUTTONS}.filter(b => b.innerText === 'Add chart')"
    browser.evaluate(f"{sections}[1].scrollIntoView()")  # charts are drawn when they are seen
    card = f"{_CARDS}.find(c => c.innerText.startsWith('train/grad_norm'))"
    said = str(
        browser.wait_for(f"{card} && {card}.querySelector('.js-plotly-plot') && {card}.innerText")
    )
    legend = [line for line in said.split("\n") if line.endswith(" (train/grad_norm)")]
    assert legend == [f"{title} (train/grad_norm)" for title in TITLES]
    browser.screenshot(shots / "arms_train.png")


def test_an_arms_page_leads_back_to_the_pilot(shown: Shown, browser: Browser, shots: Path) -> None:
    browser.open(f"{shown.server}/{pages.list_page(shown.ids[0])}")
    _expand_newest(browser)
    browser.click(f"{_ROWS}[5].querySelector('a[href*=\"/runs/\"]')")
    browser.wait_for_text("One arm of NO-GO · e4f5a6b · compare arms")
    said = browser.text()
    assert "pilot.changed: optim.learning_rate 0.003 -> 0.009" in said.replace("\n", "")
    assert "Parent run" in said
    browser.screenshot(shots / "arm.png")


@pytest.mark.parametrize(
    ("name", "ready"),
    [
        ("report.md", "document.body.innerText.includes('Gates') && document.querySelector('h1')"),
        ("verdict.json", "document.body.innerText.includes('schema_version')"),
        ("figures/FIGURE", "document.querySelector('img[src^=blob], img[src*=figures]')"),
        ("arms/lr_x3/lineage.json", "document.body.innerText.includes('attempts')"),
    ],
)
def test_artifacts_are_shown(
    shown: Shown, browser: Browser, shots: Path, name: str, ready: str
) -> None:
    name = name.replace("FIGURE", shown.figure)
    page = pages.run_page(*shown.ids).replace("?", f"/artifacts/{name}?")
    browser.open(f"{shown.server}/{page}")
    browser.wait_for_text("Path:")
    browser.wait_for(f"Boolean({ready})")
    assert json.dumps(name.rsplit("/")[-1])[1:-1] in browser.text()
    browser.screenshot(shots / f"artifact_{name.replace('/', '_')}.png")


def test_a_pilot_sent_over_the_network_is_the_same(shown: Shown, tmp_path: Path) -> None:
    """The server keeps the artifacts; nothing of it lies where the pilot ran."""
    from mlflow import MlflowClient

    parent = _send(tmp_path, "remote", five_arms(), shown.server, "pilot/remote")
    client = MlflowClient(tracking_uri=shown.server)
    experiment = client.get_experiment_by_name("pilot/remote").experiment_id
    runs = client.search_runs([experiment], order_by=["tags.`pilot.order`"])
    assert [run.info.run_name for run in runs] == ["GO · e4f5a6b", *TITLES]
    assert runs[0].info.run_id == parent
    assert len(client.get_metric_history(runs[1].info.run_id, "train/loss")) == 48
    names = [item.path for item in client.list_artifacts(parent)]
    assert names == ["arms", "figures", "report.md", "verdict.json"]
    assert not (tmp_path / "mlartifacts").exists()
    state = read_json(PilotFolder(tmp_path / "remote").tracking)
    assert state["link"] == f"{shown.server}/{pages.run_page(experiment, parent)}"
