"""The gallery: its pictures are those that its lines make, and all of them are shown."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = 8  # pixels; letters may differ by a shade from one machine to the next, blocks may not


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = spec_from_file_location("gallery", DOCS / "gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("gallery")
    module.build(folder)
    return folder


def blocks(path: Path) -> Any:
    """Mean colour of each block of a picture."""
    pixels = imread(path)[..., :3]
    height, width = (size // BLOCK * BLOCK for size in pixels.shape[:2])
    cut = pixels[:height, :width].reshape(height // BLOCK, BLOCK, width // BLOCK, BLOCK, 3)
    return cut.mean((1, 3))


def pictures(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.png")}


def test_the_page_shows_every_picture_that_it_makes(built: Path) -> None:
    shown = set(re.findall(r"\]\(gallery/([\w-]+\.png)\)", (DOCS / "gallery.md").read_text("utf-8")))
    assert shown == pictures(built) == pictures(DOCS / "gallery")


def test_pictures_are_those_that_the_lines_make(built: Path) -> None:
    for name in pictures(built):
        new, old = blocks(built / name), blocks(DOCS / "gallery" / name)
        assert new.shape == old.shape, f"{name} has changed: run `make gallery` and look at it"
        assert np.abs(new - old).max() < 0.1, f"{name} has changed: run `make gallery` and look at it"


def test_pictures_are_small() -> None:
    for path in (DOCS / "gallery").glob("*.png"):
        assert path.stat().st_size < 150_000, path.name
