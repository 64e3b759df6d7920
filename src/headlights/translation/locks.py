"""One program at a time in a folder, by a lock that the system takes back when its holder is gone."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headlights.translation.folders import FolderError, lies_at

if sys.platform != "win32":
    import fcntl

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep all other trainings out of a folder inside the block.

    A killed process blocks nobody: its lock is gone with it, and the file it leaves only tells who it was.
    Windows and some network file systems have no such locks: nobody is kept out there.

    Args:
        folder: The folder; it exists.

    Yields:
        Nothing.

    Raises:
        FolderError: Another training holds it, or the lock's file cannot be written.
    """
    with _held(folder / LOCK, f"{folder} is being trained into"):
        yield


@contextmanager
def locked_beside(folder: Path) -> Iterator[None]:
    """Keep all others that prepare into a folder out inside the block.

    The lock is as that of `locked`, but lies beside the folder, which is replaced as a whole.

    Args:
        folder: The folder; it need not exist, and neither need those above it, which are made.

    Yields:
        Nothing.

    Raises:
        FolderError: Another process prepares into it, or the lock's file cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(f"{folder.parent} cannot be made: {error.strerror}") from None
    with _held(folder.parent / f".{folder.name}{LOCK}", f"{folder} is being prepared"):
        yield


@contextmanager
def _held(path: Path, doing: str) -> Iterator[None]:
    """Hold the lock of a file; `doing` is what its holder does, for others."""
    if sys.platform == "win32":
        yield
        return
    descriptor = _taken(path, doing)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _taken(path: Path, doing: str) -> int:
    """The open file of a lock that is ours, with our name in it."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise FolderError(f"{path} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 200).decode(errors="replace").strip()
            os.close(descriptor)
            raise FolderError(
                f"{doing} by {holder or 'another process'}; wait until it ends, or choose another folder"
            ) from None
        except OSError:  # a file system without locks
            return descriptor
        if lies_at(path, os.fstat(descriptor)):
            _sign(path, descriptor)
            return descriptor
        os.close(descriptor)  # who held it took it away between our opening and locking


def _sign(path: Path, descriptor: int) -> None:
    try:
        os.truncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    except OSError as error:
        os.close(descriptor)
        raise FolderError(f"{path} cannot be written: {error.strerror}") from None
