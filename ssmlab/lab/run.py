"""Execute every notebook on what this machine has: python -m ssmlab.lab.run [--fresh] [NN ...].

Writes build/notebooks/NN_topic.ipynb (executed) and build/html/NN_topic.html (figures inside), build/html/index.html
with links to all, and ends with a table. A failing cell does not stop the other notebooks; the exit code tells.
A notebook is run again only if its cells, the package, the kernels or the machine changed since (--fresh runs all).
"""

import argparse
import hashlib
import html
import json
import platform
import sys
from pathlib import Path

from nbconvert import HTMLExporter

from ssmlab import kernels
from ssmlab.lab import notebooks
from ssmlab.lab.environment import device, name
from ssmlab.lab.execution import execute

BUILD = notebooks.ROOT / "build"


def fingerprint(path):
    """One hash over all that an executed copy depends on: cells, package, kernels, results, machine."""
    digest = hashlib.sha256()
    for cell in notebooks.read(path).cells:
        digest.update(f"{cell.cell_type}\0{cell.source}\0".encode())
    folders = [Path(__file__).resolve().parents[1], kernels.FOLDER, notebooks.RESULTS]
    for file in sorted(file for folder in folders for file in folder.rglob("*") if file.suffix != ".pyc"):
        if file.is_file():
            digest.update(file.read_bytes())
    digest.update(f"{platform.python_version()} {platform.machine()} {device()} {name()}".encode())
    constraints = notebooks.ROOT / "constraints.txt"
    digest.update(constraints.read_bytes() if constraints.exists() else b"")
    return digest.hexdigest()


def run(path, fresh):
    """Execute one notebook; returns the row of the table: name, state, seconds, failure."""
    executed = BUILD / "notebooks" / path.name
    page = BUILD / "html" / f"{path.stem}.html"
    record = BUILD / "notebooks" / f"{path.stem}.json"
    key = fingerprint(path)
    if not fresh and record.exists() and page.exists():
        before = json.loads(record.read_text(encoding="utf-8"))
        if before["fingerprint"] == key:
            return {"state": "unchanged", "seconds": before["seconds"], "failure": None}
    record.unlink(missing_ok=True)
    notebook = notebooks.read(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    seconds, failure = execute(notebook, notebooks.NOTEBOOKS)
    executed.write_text(notebooks.text_of(notebook), encoding="utf-8")
    page.write_text(to_html(notebook, path.stem), encoding="utf-8")
    if failure is None:
        record.write_text(json.dumps({"fingerprint": key, "seconds": round(seconds, 1)}), encoding="utf-8")
    return {"state": "failed" if failure else "ok", "seconds": seconds, "failure": failure}


def to_html(notebook, stem):
    body, _ = HTMLExporter(template_name="lab").from_notebook_node(notebook, {"metadata": {"name": stem}})
    return body


def index(rows):
    """One page with a link to each notebook's page."""
    items = "\n".join(
        f'<li><a href="{stem}.html">{html.escape(title)}</a> <small>{row["state"]}, {row["seconds"]:.1f} s</small></li>'
        for stem, title, row in rows)
    return ("<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
            "<title>ssmlab</title><style>body{font:17px/1.7 system-ui,sans-serif;max-width:46rem;margin:3rem auto;"
            "padding:0 1rem}small{color:#57606a}</style>"
            f"<h1>ssmlab</h1><p>The notebooks as they ran on this machine.</p><ol>{items}</ol></html>\n")


def title_of(path):
    """The notebook's question: its first heading."""
    for cell in notebooks.read(path).cells:
        for line in cell.source.splitlines():
            if line.startswith("# "):
                return line[2:].strip()
    return path.stem


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m ssmlab.lab.run", description=__doc__.splitlines()[0])
    parser.add_argument("selection", nargs="*", metavar="NN", help="only the notebooks whose names start so")
    parser.add_argument("--fresh", action="store_true", help="run also what has not changed since the last time")
    options = parser.parse_args(arguments)
    paths = [notebooks.notebook_of(source) for source in notebooks.sources(options.selection)]
    for folder in ("notebooks", "html"):
        (BUILD / folder).mkdir(parents=True, exist_ok=True)
    rows = []
    width = max(len(path.stem) for path in paths) + 2
    for number, path in enumerate(paths, start=1):
        print(f"[{number}/{len(paths)}] {path.stem:{width}}", end="", flush=True)
        row = run(path, options.fresh)
        rows.append((path.stem, title_of(path), row))
        print(f"{row['state']:10} {row['seconds']:6.1f} s", flush=True)
        if row["failure"]:
            print(f"      cell {row['failure'].cell}: {row['failure'].error}", flush=True)
    page = BUILD / "html" / f"{rows[0][0]}.html"
    if not options.selection:
        page = BUILD / "html" / "index.html"
        page.write_text(index(rows), encoding="utf-8")
    failed = [row for row in rows if row[2]["failure"]]
    print(f"\n{'notebook':{width}} {'result':10} {'seconds':>8}")
    for stem, _, row in rows:
        print(f"{stem:{width}} {row['state']:10} {row['seconds']:8.1f}")
    for stem, _, row in failed:
        print(f"\n{stem}, cell {row['failure'].cell}:\n{row['failure'].traceback}")
    print(f"\n{len(rows) - len(failed)} of {len(rows)} notebooks ran. Read them: {page}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
