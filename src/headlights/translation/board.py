"""TensorBoard: the numbers of the log as curves, for who asks for them."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self


class Board:
    """Event files for TensorBoard.

    Args:
        path: Their folder; made if need be.
        update: Updates done so far. What older files say of later ones is hidden: it will happen again.

    Raises:
        ImportError: The package `tensorboard` is not installed.
    """

    def __init__(self, path: Path, update: int) -> None:
        check_tensorboard()
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - slow, and an extra

        self._writer: Any = SummaryWriter(str(path), purge_step=update + 1)

    def add(self, entry: dict[str, Any]) -> None:
        """Add a line of the log.

        Args:
            entry: Numbers by name, `update` among them; a curve each.
        """
        for name, value in entry.items():
            if name != "update":
                self._writer.add_scalar(name, value, entry["update"])
        self._writer.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()


def check_tensorboard() -> None:
    """Refuse early if TensorBoard's files cannot be written.

    Raises:
        ImportError: The package `tensorboard` is not installed.
    """
    if find_spec("tensorboard") is None:
        raise ImportError(
            "training.tensorboard needs the package tensorboard: pip install 'headlights[tensorboard]'"
        )
