"""The app over real files: a user's registry, a site registry that may be there, a workspace."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chatops.config.site_files import SitePlace
from chatops.wiring.app import App
from chatops.wiring.stored import Options


class Bench:
    """Writes registries and opens apps on them; all of them are closed at the end."""

    def __init__(self, base: Path, home: Path) -> None:
        self.workspace = base / "project"
        self.workspace.mkdir()
        self.own = home / "config" / "model_registry.json"
        self.own.parent.mkdir(parents=True, exist_ok=True)
        self.etc = base / "etc"
        self.etc.mkdir(mode=0o755)
        self.site_place = SitePlace(path=self.etc / "model_registry.json", owner=os.getuid(), top=self.etc)
        self.apps: list[App] = []

    def write(self, **keys: Any) -> None:
        """The user's registry."""
        self.own.write_text(json.dumps({"version": 3, "roles": {"assistant": {}}, **keys}))

    def write_site(self, **keys: Any) -> None:
        """The site's registry."""
        self.site_place.path.write_text(json.dumps({"version": 3, **keys}))
        self.site_place.path.chmod(0o644)

    def app(self) -> App:
        """The app as it starts now."""
        self.apps.append(App(Options(workspace=self.workspace)))
        return self.apps[-1]


@pytest.fixture
def bench(tmp_path: Path, chatops_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """An empty bench; the site registry is looked for in its own `etc`."""
    made = Bench(tmp_path, chatops_home)
    monkeypatch.setattr("chatops.config.registry.SitePlace", lambda: made.site_place)
    yield made
    for app in made.apps:
        app.store.close()
