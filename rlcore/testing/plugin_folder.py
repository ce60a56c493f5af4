"""A folder that Python and ``importlib.metadata`` take for a site-packages with plugins in it.

>>> with PluginFolder(tmp_path) as folder:
...     folder.install("acme", 'rlcore_api = "2.0"')
...     registry = folder.discover()

Nothing is installed anywhere: leaving the block takes the folder off ``sys.path`` and forgets the modules that came from it.
"""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from types import TracebackType

from rlcore.registry.plugin_registry import Registry

__all__ = ["PluginFolder", "Registry"]


class PluginFolder:
    """Distributions made of text. A context manager: inside the block they are importable and ``Registry.discover()`` sees them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def install(
        self,
        name: str,
        source: str = 'rlcore_api = "2.0"\n',
        *,
        distribution: str | None = None,
        version: str = "1.0",
        target: str | None = None,
        files: Mapping[str, str] | None = None,
        group: str = "rlcore",
        requires: Sequence[str] = (),
    ) -> str:
        """Write the distribution of a plugin and return its name, ``rlcore-plugin-<name>`` unless ``distribution`` gives another.

        ``source`` is its entry module, a package ``rlcore_plugin_<name>``; ``files`` maps further paths inside that package to their text;
        ``target`` replaces the module that the entry point names. ``group``: the group of its entry point, "" for none. ``requires``: the
        distributions that it declares to require.
        """
        distribution = distribution or f"rlcore-plugin-{name}"
        package = f"rlcore_plugin_{name.replace('-', '_')}"
        written = {f"{package}/__init__.py": source}
        written |= {f"{package}/{path}": text for path, text in (files or {}).items()}
        info = f"{distribution.replace('-', '_')}-{version}.dist-info"
        metadata = {
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
            + "".join(f"Requires-Dist: {text}\n" for text in requires),
            f"{info}/entry_points.txt": f"[{group}]\n{name} = {target or package}\n" if group else "",
        }
        record = "".join(f"{path},,\n" for path in [*written, *metadata, f"{info}/RECORD"])
        for path, text in {**written, **metadata, f"{info}/RECORD": record}.items():
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text), encoding="utf-8")
        importlib.invalidate_caches()
        return distribution

    def discover(self) -> Registry:
        """Return the registry of the built-ins and this folder's plugins alone, whatever else is installed on the machine."""
        return Registry.discover(distributions(path=[str(self.root)]))

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment with the folder in front of PYTHONPATH: for a command that is to see these plugins."""
        path = os.pathsep.join(filter(None, [str(self.root), os.environ.get("PYTHONPATH", "")]))
        return {**os.environ, "PYTHONPATH": path}

    def __enter__(self) -> PluginFolder:
        self.root.mkdir(parents=True, exist_ok=True)
        sys.path.insert(0, str(self.root))
        importlib.invalidate_caches()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        sys.path.remove(str(self.root))
        below = f"{self.root}{os.sep}"  # compared with thousands of modules where torch is loaded
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(below):
                del sys.modules[name]
        sys.path_importer_cache.pop(str(self.root), None)
        importlib.invalidate_caches()
