"""Requests: the command line and Python ask for the same by default."""

from __future__ import annotations

import dataclasses

import pytest

from layoutopt.config import settings
from layoutopt.model import requests

KINDS = [kind for kind in vars(requests).values() if isinstance(kind, type) and kind.__name__.endswith("Request")]
# What the command line says of the picture that it draws.
NOT_SAID = {"OptimizeRequest": {"curve"}}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_settings_have_the_defaults_of_requests(kind: type) -> None:
    verb = getattr(settings, kind.__name__.replace("Request", "Settings"))
    for field in dataclasses.fields(kind):
        if field.name in NOT_SAID.get(kind.__name__, ()):
            continue
        said = verb.model_fields[field.name]
        if field.default is dataclasses.MISSING:
            assert said.is_required(), field.name
        else:
            assert said.default == field.default, field.name
