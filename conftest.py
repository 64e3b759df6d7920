"""The examples in README.md and docs/ are tests: each Python block runs, in order, in a folder of its own."""

import os
import tempfile
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser


def _enter(namespace: dict[str, Any]) -> None:
    namespace["_before"], namespace["_folder"] = os.getcwd(), tempfile.TemporaryDirectory()
    os.chdir(namespace["_folder"].name)


def _leave(namespace: dict[str, Any]) -> None:
    os.chdir(namespace["_before"])
    namespace["_folder"].cleanup()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()], patterns=["*.md"], setup=_enter, teardown=_leave
).pytest()
