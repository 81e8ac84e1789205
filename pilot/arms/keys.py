"""Which keys of a configuration can be an arm's variable. Pure.

An arm is worth its compute when its process reads the key. A key that defines the pilot itself is
the same for all arms, or they could not be compared.
"""

from __future__ import annotations

RECIPE = "recipe"
# Sections in which every key may be an arm's variable.
SECTIONS = (RECIPE, "full_run", "optim", "batch")
# Sections that may have keys of their own: arguments of the optimizer, settings of the recipe.
OPEN_SECTIONS = ("optim", RECIPE)
_SINGLE = ("precision", "pilot.seed")
# The order is drawn once, before any arm: an arm could not change it.
_ORDER = ("pilot.data_seed", "recipe.shuffle")
_UNREAD_SECTIONS = ("tracking", "checks", "launcher")
_COMMON = {
    "out_dir": "names the folder of the whole pilot",
    "arms": "says which arms there are",
    "gates": "judges the baseline",
    "engine": "runs every arm",
    "pilot": "defines the pilot, which all arms share",
    "recipe.module": "is the code that every arm runs",
    "recipe.resume_from": "is the checkpoint that every arm starts from",
    "full_run.start_step": "is the step that every arm starts at",
}
# Nothing that an arm computes depends on these, even when they follow its variable.
_UNREAD_COMMON = ("arms", "gates", "out_dir")


def refusal(key: str) -> str:
    """Why ``key`` can be no arm's variable; empty when it can, or when there is no such section."""
    if key in _SINGLE:
        return ""
    if key in _ORDER:
        return "cannot be an arm: the order of the rows is shared by all arms"
    reason = _COMMON.get(key) or _COMMON.get(key.partition(".")[0])
    return f"cannot be an arm: it {reason}" if reason else ""


def remedy(key: str) -> str:
    """What to do instead of an arm whose ``key`` is refused."""
    if key in _ORDER:
        return f"pilot it by itself: {key}=VALUE"
    return f"arms can change {allowed()}"


def allowed() -> str:
    """The keys that can be an arm's variable, in words."""
    return ", ".join([*(f"{section}.*" for section in SECTIONS), *_SINGLE])


def no_influence(key: str) -> str:
    """Why an arm that changes ``key`` is the baseline again; empty when it may differ."""
    section = key.partition(".")[0]
    if section in _UNREAD_SECTIONS:
        return f"an arm does not read {section}.*: identical"
    return ""


def is_unread(key: str) -> bool:
    """Whether nothing that an arm computes depends on ``key``."""
    return bool(no_influence(key)) or key.partition(".")[0] in _UNREAD_COMMON


def must_not_follow(key: str) -> bool:
    """Whether ``key`` may not change together with an arm's variable."""
    return bool(refusal(key)) and key.partition(".")[0] not in _UNREAD_COMMON
