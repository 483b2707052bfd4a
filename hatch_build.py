"""Metadata that depends on the repository's address, which pyproject.toml has in one place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?\[[^\[\]]*\]\()(?![a-z]+:|#)([^()]+)\)")
"""A link of Markdown to a file of the repository."""


class RepositoryMetadata(MetadataHookInterface):
    """Add the project's URLs, and a description that can be read outside the repository."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the fields that pyproject.toml declares as dynamic."""
        repository = self.config["repository"]
        tag = f"v{metadata['version']}"
        pages = f"{repository}/blob/{tag}"

        def absolute(found: re.Match[str]) -> str:
            start, target = found.groups()
            folder = f"{repository}/raw/{tag}" if start.startswith("!") else pages
            return f"{start}{folder}/{target})"

        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": LINK.sub(absolute, readme),
        }
        metadata["urls"] = {
            "Repository": repository,
            "Documentation": f"{repository}/tree/{tag}/docs",
            "Issues": f"{repository}/issues",
            "Changelog": f"{pages}/CHANGELOG.md",
        }
