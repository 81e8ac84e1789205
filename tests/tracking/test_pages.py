from __future__ import annotations

import base64
import json
import zlib

from pilot.tracking import pages


def test_every_page_opens_among_the_runs() -> None:
    for page in (
        pages.run_page("3", "ab"),
        pages.list_page("3"),
        pages.view_page("3"),
        pages.arms_page("3", "ab"),
    ):
        assert page.startswith("#/experiments/3/runs")
        assert "?workflowType=machine_learning" in page


def test_the_saved_view_shows_the_verdicts_columns() -> None:
    view = json.loads(pages.saved_view(5))
    kind, _, packed = view["state"].partition(";")
    state = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert (view["name"], view["createdAt"], kind) == ("Pilot verdicts", 5, "deflate")
    assert state["selectedColumns"][:3] == [
        "tags.`pilot.verdict`",
        "tags.`pilot.word`",
        "metrics.`pilot/final_loss`",
    ]
    assert pages.VIEW_NAME in pages.EXPERIMENT_NOTE
