"""How often an arm is called better or worse: without any effect, and with a known one.

    python -m tests.benchmarks.arm_words [--pilots 20] [--out outputs/arm_words] [WORDS ...]

Runs whole pilots of the default recipe over different orders of the data. One arm changes what
cannot matter but for rounding (AdamW's eps 1e-8 to 1.1e-8), one is a renamed run, one has a tenth
of the rate. Prints a line a pilot and the counts; a pilot that is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

NULL, RENAMED, TENTH = "eps 1.1e-08", "experiment renamed", "lr x1/10"
_ARMS = (
    "arms.learning_rate_scales=['1/10']",
    "arms.max_grad_norm=null",
    "arms.add=[{optim.eps: 1.1e-8}, {tracking.experiment: renamed}]",
    "arms.noise_dir=null",
)


def run(root: Path, seed: int, words: list[str]) -> dict[str, Any]:
    """The verdict of one pilot, over its own order of the data."""
    if not (root / "verdict.json").is_file():
        command = [sys.executable, "-m", "pilot", "+recipe=llama_ft", "tracking=none", *_ARMS]
        command += [f"pilot.data_seed={seed}", f"pilot.seed={seed}", f"out_dir={root}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not (root / "verdict.json").is_file():
            raise SystemExit(done.stdout + done.stderr)
    found: dict[str, Any] = json.loads((root / "verdict.json").read_text(encoding="utf-8"))
    return found


def cell(row: dict[str, Any]) -> str:
    """An arm's word with the numbers behind it."""
    effect = row.get("effect") or {}
    value, half = effect.get("value"), effect.get("half_width")
    if value is None or half is None:
        return str(row["words"])
    return f"{row['words']} ({value:+.4f} \u00b1 {half:.4f}, {row['num_own_steps']} steps)"


def main() -> None:
    """Run the pilots, print the table and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pilots", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("outputs/arm_words"))
    options, words = parser.parse_known_args()
    counts: dict[str, Counter[str]] = {name: Counter() for name in (NULL, RENAMED, TENTH)}
    print("| seed | verdict | " + " | ".join(counts) + " | steps / baseline's |")
    for seed in range(options.pilots):
        verdict = run((options.out / f"{seed:02d}").resolve(), seed, words)
        arms = {row["title"]: row for row in verdict["arms"]}
        for name, count in counts.items():
            count[arms[name]["words"]] += 1
        cells = [str(seed), verdict["verdict"], *(cell(arms[name]) for name in counts)]
        print("| " + " | ".join([*cells, f"{verdict['cost']['ratio']:.3g}"]) + " |", flush=True)
    for name, count in counts.items():
        print(f"{name}: " + ", ".join(f"{word} {n}" for word, n in count.most_common()))


if __name__ == "__main__":
    main()
