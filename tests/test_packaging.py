"""What pip, conda and a reader of the README are told is the same, and a built wheel works alone."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
import venv

import pytest
from packaging.specifiers import SpecifierSet

from ssmlab import kernels
from ssmlab.lab import notebooks

ROOT = notebooks.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements():
    """Every distribution that the dev extra installs directly, by name."""
    extras = PROJECT["optional-dependencies"]
    lines = PROJECT["dependencies"] + extras["dev"] + extras["lab"] + extras["compiler"]
    return sorted({re.split(r"[\[><=; ]", line)[0] for line in lines} - {"ssmlab"})


def test_conda_users_get_the_same_python_and_the_same_packages():
    environment = (ROOT / "environment.yml").read_text(encoding="utf-8")
    lower = PROJECT["requires-python"].removeprefix(">=")
    assert re.search(rf"- python >={re.escape(lower)}", environment)
    assert re.search(r"- pip:\n\s+- -c constraints\.txt\n\s+- -e \.\[dev\]\n", environment)
    assert "cxx-compiler" in environment


def test_every_direct_requirement_is_pinned_within_its_range():
    pytest.importorskip("packaging")
    from packaging.requirements import Requirement

    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    extras = PROJECT["optional-dependencies"]
    for line in PROJECT["dependencies"] + extras["dev"] + extras["lab"] + extras["compiler"]:
        requirement = Requirement(line)
        if requirement.name == "ssmlab":
            continue
        assert requirement.name in pinned, f"{requirement.name} is not pinned in constraints.txt"
        assert pinned[requirement.name] in requirement.specifier, f"{line} excludes the pin {pinned[requirement.name]}"
        assert "<" in str(requirement.specifier), f"{line} has no upper bound"


def test_every_pin_runs_on_the_oldest_python_that_is_promised():
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M)
    oldest = "3.11.0"
    assert PROJECT["requires-python"] == ">=3.11"
    late, found = [], 0
    for pin in pins:
        try:
            needs = importlib.metadata.metadata(pin)["Requires-Python"]
        except importlib.metadata.PackageNotFoundError:  # for another system or another CUDA
            continue
        found += 1
        if needs and not SpecifierSet(needs).contains(oldest):
            late.append((pin, needs))
    assert found > 50 and late == []


def test_the_owners_dependencies_are_there():
    names = requirements()
    for name in ("jupyterlab", "numpy", "torch", "matplotlib", "nbval"):
        assert name in names
    assert {"cuda12", "cuda13", "compiler", "lab", "dev"} <= set(PROJECT["optional-dependencies"])


def test_a_built_wheel_in_an_empty_environment_imports_and_finds_its_kernels(tmp_path):
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT,
                   check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=False)
    python = tmp_path / "empty" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index",
                    str(wheel)], check=True, timeout=120)
    process = subprocess.run([str(python), "-c", "import ssmlab, ssmlab.kernels as k\n"
                              "print(*k.names()); [k.source(name) for name in k.names()]; print(ssmlab.__version__)"],
                             cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    names, version = process.stdout.splitlines()
    assert names.split() == kernels.names() and names
    assert version == PROJECT["version"]


def test_no_committed_text_names_a_registry_host_or_a_path_of_one_machine():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if files.returncode:
        pytest.skip("not a git checkout")
    hosts = re.compile("|".join(("files.python" + "hosted", "pypi" + r"\.org", "registry.npm" + "js", "/home" + "/")))
    for name in files.stdout.split():
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".txt", ".yml", ".ipynb", ".cu", ".cuh", ".h", ".json"):
            assert not (match := hosts.search(path.read_text(encoding="utf-8"))), f"{name}: {match[0]}"
