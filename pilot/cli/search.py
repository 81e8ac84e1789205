"""Where Hydra looks for configuration: pilot's own conf/, and the user's.

A recipe in the user's folder wins over one of ours with the same name. In every other group ours
win: the folder may belong to another Hydra project, whose ``config.yaml`` or ``optim/adamw.yaml``
must not replace what pilot checks against.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra import initialize_config_dir
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult
from hydra.plugins.search_path_plugin import SearchPathPlugin

from pilot.config import conf_dir
from pilot.errors import FolderError

VERSION_BASE = "1.3"
_user_dirs: tuple[Path, ...] = ()


class RecipesOnlySource(FileConfigSource):
    """A folder of which only the group ``recipe`` is seen."""

    @staticmethod
    def scheme() -> str:
        """The scheme of its search-path entries."""
        return "pilot-recipes"

    def load_config(self, config_path: str) -> ConfigResult:
        """Load a recipe; anything else is not here."""
        if not _is_recipe(config_path):
            raise ConfigLoadError(f"Config not found : {config_path}")
        return super().load_config(config_path)

    def is_group(self, config_path: str) -> bool:
        """Whether it is the group ``recipe`` (or the root, so that the folder counts as there)."""
        return (config_path == "" or _is_recipe(config_path)) and super().is_group(config_path)

    def is_config(self, config_path: str) -> bool:
        """Whether it is a recipe that this folder has."""
        return _is_recipe(config_path) and super().is_config(config_path)

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """The recipes of this folder."""
        if config_path == "":
            return ["recipe"] if super().is_group("recipe") else []
        return super().list(config_path, results_filter)


class UserSearchPath(SearchPathPlugin):
    """Adds the user's folders, as described at the top of this file."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Put recipes of the user's folders first, everything else of them last."""
        for folder in reversed(_user_dirs):
            search_path.prepend("pilot-user", f"{RecipesOnlySource.scheme()}://{folder}")
        for folder in _user_dirs:
            search_path.append("pilot-user", f"file://{folder}")


def use_user_dirs(start: Path, config_dir: Path | None) -> tuple[Path, ...]:
    """Make Hydra look into ``config_dir`` and ``start/conf`` too, where they exist.

    Raises:
        FolderError: ``config_dir`` is not a folder.
    """
    global _user_dirs
    if config_dir is not None and not (start / config_dir).is_dir():
        raise FolderError(
            config_dir, "--config-dir is not a folder", remedy="give the folder that holds recipe/"
        )
    wanted = [start / "conf"] if config_dir is None else [start / config_dir, start / "conf"]
    folders = [folder.resolve() for folder in wanted if folder.is_dir()]
    _user_dirs = tuple(f for f in dict.fromkeys(folders) if f != conf_dir())
    for plugin in (RecipesOnlySource, UserSearchPath):
        Plugins.instance().register(plugin)
    return _user_dirs


@contextmanager
def hydra_session() -> Iterator[None]:
    """Hydra's compose API over pilot's conf/ and the user's folders."""
    with initialize_config_dir(str(conf_dir()), job_name="pilot", version_base=VERSION_BASE):
        yield


def _is_recipe(config_path: str) -> bool:
    return config_path == "recipe" or config_path.startswith("recipe/")
