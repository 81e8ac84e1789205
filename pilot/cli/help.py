"""The text of ``python -m pilot --help``: made from the folders, without Hydra (fast)."""

from __future__ import annotations

from pathlib import Path

from pilot.cli.words import WORDS

_HEAD = """\
pilot - may this training run start as it is configured,
        and if not, which single change makes it safe?

usage: python -m pilot +recipe=NAME [KEY=VALUE ...]        pilot a recipe
       python -m pilot -m +recipe=NAME KEY=VALUE,VALUE ... each listed value is an arm of one pilot
       python -m pilot WORD DIR ...                        work with a pilot that exists
"""

_TAIL = """\
flags:
  -m, --multirun         KEY=VALUE,VALUE: every value is an arm of its own around the recipe as it
                         stands, one variable at a time; without arms=NAME the group is arms=star
  --cfg job              print the composed configuration and stop (with +recipe=NAME)
  --config-dir DIR       a folder with your own groups: DIR/recipe/mine.yaml is +recipe=mine
  --info, --hydra-help   Hydra's own
  --version              pilot's version

exit codes: 0 GO, 1 pilot crashed, 2 configuration or usage error, 3 NO-GO, 4 INCONCLUSIVE

examples:
  python -m pilot +recipe=llama_ft
  python -m pilot +recipe=llama_ft optim=sgd optim.learning_rate=1.0 optim.max_grad_norm=null
  python -m pilot -m +recipe=llama_ft optim.learning_rate=1e-5,3e-5 optim.max_grad_norm=null,1.0
  python -m pilot +recipe=llama_ft arms=reference arms.add='[{optim.beta2: 0.95}]'
  python -m pilot +recipe=mine && sbatch full_run.sh

Every key is explained in conf/README.md and in the files beside it."""


def help_text(start: Path | None = None) -> str:
    """The whole help; recipes of ``start`` (default: the working directory) come first."""
    from pilot.config import conf_dir

    ours, theirs = conf_dir(), (start or Path.cwd()) / "conf"
    recipes = _recipes(ours) | (_recipes(theirs) if theirs != ours else {})
    lines = [_HEAD, "recipes:"]
    lines += [f"  {name:<20} {about}".rstrip() for name, about in sorted(recipes.items())]
    lines += ["", "groups (choose with GROUP=OPTION):"]
    for group in sorted(p for p in ours.iterdir() if p.is_dir() and p.name != "recipe"):
        options = sorted(path.stem for path in group.glob("*.yaml"))
        lines.append(f"  {group.name:<20} {' | '.join(options)}")
    lines += [
        "",
        "words:",
        *(f"  {w.summary}" for w in WORDS.values() if not w.internal),
        "",
        _TAIL,
    ]
    return "\n".join(lines)


def _recipes(conf: Path) -> dict[str, str]:
    return {path.stem: _first_comment(path) for path in sorted((conf / "recipe").glob("*.yaml"))}


def _first_comment(path: Path) -> str:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.lstrip("# ").strip()
        if line.startswith("#") and text and not text.startswith("@package"):
            return text.rstrip(".")
    return ""
