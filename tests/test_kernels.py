"""Finding the kernel files and pasting what they include."""

import pytest

from ssmlab import kernels
from ssmlab.simt.tokens import Text


def test_each_kernel_file_is_named_once():
    names = kernels.names()
    assert names == sorted(set(names)) and "block_scan_v2_double_buffer.cu" in names
    assert all(kernels.path(name).parent == kernels.FOLDER for name in names)


def test_a_name_that_is_no_file_lists_the_names():
    with pytest.raises(FileNotFoundError, match=r"no file 'block_scan.cu'; it has .*block_scan_v1_one_buffer.cu"):
        kernels.source("block_scan.cu")
    with pytest.raises(FileNotFoundError):
        kernels.path("../README.md")


@pytest.mark.parametrize("name", kernels.names())
def test_no_local_include_is_left_and_lines_keep_their_numbers(name):
    text = kernels.path(name).read_text(encoding="utf-8")
    pasted = kernels.source(name)
    assert not [line for line in pasted.splitlines() if line.startswith('#include "')]
    if '#include "' not in text:
        assert pasted == text
    unit = Text(pasted, name)
    lines = text.splitlines()
    for number in {1, len(lines) // 2, len(lines)}:
        if not lines[number - 1].startswith("#include"):
            assert unit.line_text(unit.find_line(name, number)) == lines[number - 1]


def test_an_edit_of_an_included_file_changes_the_text(tmp_path, monkeypatch):
    (tmp_path / "k.cu").write_text('#include "pair.cuh"\n')
    (tmp_path / "pair.cuh").write_text("int one;\n")
    monkeypatch.setattr(kernels, "FOLDER", tmp_path)
    before = kernels.source("k.cu")
    (tmp_path / "pair.cuh").write_text("int two;\n")
    assert "int one;" in before and "int two;" in kernels.source("k.cu")


def test_a_missing_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "FOLDER", tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match="the folder kernels_cu is neither"):
        kernels.path("k.cu")
