"""Finds the kernels of this project: in kernels_cu/ of a checkout, or in ssmlab/kernels_cu/ of an installed wheel."""

from __future__ import annotations

from pathlib import Path

from .simt.includes import paste

_PLACES = (Path(__file__).resolve().parent / "kernels_cu", Path(__file__).resolve().parents[1] / "kernels_cu")


FOLDER = next((place for place in _PLACES if place.is_dir()), _PLACES[1])


def names() -> list[str]:
    """The names of all kernel files, sorted: "block_scan_v1_one_buffer.cu" …"""
    return sorted(found.name for found in FOLDER.glob("*.cu"))


def path(name: str) -> Path:
    """Where a file of kernels_cu lies. Raises FileNotFoundError that lists the names, or the places of the folder."""
    if not FOLDER.is_dir():
        raise FileNotFoundError(
            f"the folder kernels_cu is neither {_PLACES[0]} nor {_PLACES[1]}: is the installation complete?"
        )
    found = FOLDER / name
    if Path(name).name != name or not found.is_file():
        known = ", ".join(sorted(item.name for item in FOLDER.glob("*.cu*")))
        raise FileNotFoundError(f"kernels_cu has no file {name!r}; it has {known}")
    return found


def source(name: str) -> str:
    """The text of a kernel file, its local includes pasted in with #line; without local includes exactly the file."""
    return paste(path(name).read_text(encoding="utf-8"), name, [FOLDER])
