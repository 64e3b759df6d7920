"""Makes the pictures of gallery.md: runs the page's Python blocks in a folder. `make gallery` calls it."""

import os
import re
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("gallery.md")


def build(folder: Path) -> None:
    """Runs the page's blocks, in order, as one program.

    Args:
        folder: Where the pictures are written to; it exists.
    """
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    before, namespace = os.getcwd(), dict[str, Any]()
    os.chdir(folder)
    try:
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), namespace)
    finally:
        os.chdir(before)


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE.with_name("gallery"))
