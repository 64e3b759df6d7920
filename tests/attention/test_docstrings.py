"""The examples in docstrings give what they print."""

import doctest
import importlib
import pkgutil

import pytest

import headlights.attention

MODULES = [module.name for module in pkgutil.iter_modules(headlights.attention.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(f"headlights.attention.{name}")
    assert doctest.testmod(module).failed == 0
