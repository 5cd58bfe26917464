"""The published JSON Schemas are schemas."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from cfk_plugin.data.formats import schemas


@pytest.mark.parametrize("name", schemas())
def test_schema_is_valid(name: str) -> None:
    """Every file of the package is a JSON Schema of the dialect that it names."""
    schema = schemas()[name]
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
