"""Facts about the published schema of an answers file."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from mrtr_cassette.core.answers.file_model import FileModel

ACCEPTED = {"action": "accept", "content": {"confirm": True}}


def test_published_schema_is_the_models() -> None:
    """The schema in the documentation is generated, and takes what the reader takes."""
    published = Path(__file__).parents[3] / "docs" / "answers.schema.json"
    schema = json.loads(published.read_text())
    draft = schema.pop("$schema")
    assert draft == "https://json-schema.org/draft/2020-12/schema"
    assert schema == FileModel.model_json_schema()
    rule = {"tool": "deploy", **ACCEPTED}
    jsonschema.validate({"otherwise": "decline", "rule": [rule]}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"rule": [{"tol": "deploy"}]}, schema)
