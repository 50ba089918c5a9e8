"""The folder for compiled kernels: where it is, files that appear whole or not at all, and a bound on its size."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

_MOST_FILES = 2000  # about 200 MB of small libraries; the ones not used for longest go first


def folder() -> Path:
    """The cache folder: $SSMLAB_CACHE, or the platform's place for caches. Created when missing.

    Raises RuntimeError that names the folder and $SSMLAB_CACHE where it cannot be written.
    """
    named = os.environ.get("SSMLAB_CACHE")
    if named:
        path = Path(named).expanduser().absolute()
    elif sys.platform == "win32":
        path = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "ssmlab" / "Cache"
    elif sys.platform == "darwin":
        path = Path.home() / "Library" / "Caches" / "ssmlab"
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        path = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "ssmlab"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(path, error) from error
    return path


def _unusable(path: Path, error: OSError) -> RuntimeError:
    return RuntimeError(
        f"the cache folder {path} cannot be written ({error.strerror}): "
        "set the environment variable SSMLAB_CACHE to a folder that can"
    )


def workplace() -> tempfile.TemporaryDirectory:
    """A temporary folder inside the cache, so that a finished file can be moved to its place in one step."""
    path = folder()
    try:
        return tempfile.TemporaryDirectory(prefix="build-", dir=path)
    except OSError as error:
        raise _unusable(path, error) from error


def publish(file: Path, name: str) -> Path:
    """Move a finished file to its place in the cache. Another process may have been faster: either file is as good."""
    target = folder() / name
    try:
        os.replace(file, target)
    except PermissionError:  # Windows: the file is there and loaded
        if not target.exists():
            raise
    return target


def prune() -> None:
    """Keep the newest files when there are too many; a file that another process removed first is no matter."""
    files = []
    for entry in os.scandir(folder()):
        if entry.is_file() and entry.name.endswith((".so", ".dylib", ".dll")):
            try:
                files.append((entry.stat().st_mtime, entry.path))
            except FileNotFoundError:
                continue
    if len(files) <= _MOST_FILES:
        return
    for _, path in sorted(files)[: len(files) - _MOST_FILES * 3 // 4]:
        try:
            os.unlink(path)
        except (FileNotFoundError, PermissionError):
            continue
