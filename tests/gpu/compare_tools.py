"""Every right kernel and every mutant under NVIDIA's tools and under ours, side by side.

    python tests/gpu/compare_tools.py              on a GPU machine, about 3 minutes; writes the JSON and the table
    python tests/gpu/compare_tools.py --missing    the same for files that the JSON does not know yet; keeps the others
    python tests/gpu/compare_tools.py --counters   counts all launches again with ncu; keeps what the other tools said
    python tests/gpu/compare_tools.py --dry-run    lists what would be started
    python tests/gpu/compare_tools.py --ours       counts our side of the JSON again, on any machine, and the table
    python tests/gpu/compare_tools.py --render     writes the table of kernels_cu/README.md from the JSON again

Needs CuPy, compute-sanitizer and ncu, and a C++ compiler for our side. Each kernel runs under compute-sanitizer
(memcheck, racecheck, synccheck, initcheck), and once without a tool; ncu counts requests, sectors, shared wavefronts
and bank conflicts of the right kernels and of the ladder. A launch that may kill its process's context runs in a
process of its own, the others a few to a process; a batch whose context died all the same is run again one by one.
A process that is not back in time is killed, and its row says "hangs".

The hardware's trips of shared memory (wavefronts) and bank conflicts also hold the trips that an access lost because
another one reached the data banks first, such as a write to global memory (arbitration). How many differs from run to
run, and they are no property of the addresses, so they are taken off: the surplus over what ncu counts in instrumented
machine code, as far as the hardware's own counter of arbitration accounts for it. That one counts losses of every kind,
and the instrumented count is too high where lanes share an address of 8 or 16 bytes (tests/gpu/wide_reads.py), so
neither of the two would do alone. The hardware's counters are read in a run of their own, to be of one run.
"""
import argparse
import csv
import datetime
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

import kernel_files as files  # noqa: E402

OUT = ROOT / "notebooks" / "results" / "simt_vs_tools.json"
README = ROOT / "kernels_cu" / "README.md"
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
BATCH = 9  # launches to a process, where one cannot harm the next
HARMLESS = {"race", "global-race", "wrong-result", "uninitialised"}  # kinds after which the context lives
MAY_HANG = {"divergent-barrier", "deadlock", "invalid-mask", "endless-loop"}
TIME_LIMIT = 90  # [s] for a process, 16 of them beside each other
HANG_LIMIT = 30  # [s] for one whose kernel may never end

COUNTERS = {  # ours -> ncu's
    ("global", "read", "requests"): "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    ("global", "read", "sectors"): "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    ("global", "write", "requests"): "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    ("global", "write", "sectors"): "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    ("shared", "read", "wavefronts"): "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    ("shared", "read", "bank_conflicts"): "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    ("shared", "write", "wavefronts"): "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    ("shared", "write", "bank_conflicts"): "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
}
INSTRUMENTED = {  # trips of shared memory
    "read": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "write": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
}
ARBITRATION = "l1tex__data_bank_conflicts_type_arbitration.sum"
RUNS = [[*(name for key, name in COUNTERS.items() if key[0] == "global"), *INSTRUMENTED.values()],
        [*(name for key, name in COUNTERS.items() if key[0] == "shared"), ARBITRATION]]

# Why the tools say less than we do, by our kind of finding; a file's own reason goes first.
SILENCE = {
    "global-race": "no NVIDIA tool looks at races on global memory",
    "divergent-barrier": "on the GPU a thread that has left counts as arrived, and synccheck follows the GPU",
    "invalid-mask": "synccheck says nothing about the mask of a shuffle",
    "uninitialised": "this initcheck looks at global memory only",
    "local-escape": "a local address means each thread's own memory: everyone reads their own value, in bounds",
    "deadlock": "the four blocks fit on this GPU side by side, so every wait ends",
    "stack-overflow": "nvcc turned the recursion into a loop",
}
SILENCE_OF = {
    "atomic_and_plain": "racecheck says nothing about a plain access that meets an atomic",
    "bins_cleared_late": "racecheck says nothing about a plain access that meets an atomic",
    "v5_padding_overrun": "memcheck is silent, for the row ends in the array behind it; racecheck sees who meets there",
    "chained_plain_flag": "nvcc reads the flag once and then loops for ever, and the tools wait with the kernel",
    "uneven_loop": "lanes in the loop and lanes behind it wait for each other, and the tools wait with the kernel",
}

# Why counters differ, by file, as the machine code shows (sm_90); none differs without a reason here
# (tests/test_compare_tools.py).
LAST_ROUND = ("in the last round nobody needs the decay: nvcc reads 4 of the pair's 8 bytes, which takes the same "
              "trips, but half of them count as conflicts")
BOTH_BRANCHES = "`part[t]` stands in both branches of `?:`, and nvcc reads it once for all lanes"
FOUR_AT_ONCE = "nvcc reads four neighbours of `part` as one 16-byte word"
POLLS = "a waiting block polls the flag more than once"
COUNTED_ELSE = {
    "block_scan_v1_one_buffer": LAST_ROUND,
    "block_scan_v2_double_buffer": LAST_ROUND,
    "block_scan_v4_tree": "nvcc reads both children of the lowest level as one 8-byte word, 128 and 256 trips fewer",
    "chained_scan": POLLS,
    "chunk_carry": "nvcc reads `.x` and `.y` of a total as one 8-byte word",
    "dynamic_shared": "`x[i]` stands twice in the text, and nvcc reads it once",
    "grid_total": FOUR_AT_ONCE + "; `grid.sync()` polls a word of its own in global memory",
    "group_sum": FOUR_AT_ONCE,
    "guarded_work": BOTH_BRANCHES,
    "half_warp_exchange": "nvcc reads `x[t]` in front of the branch and writes `y[t]` behind it, once for both halves",
    "look_back_pairs": POLLS,
    "look_back_volatile": POLLS,
    "return_behind_barrier": BOTH_BRANCHES,
}


def launchable():
    """[(path, kinds)] of everything that runs on the GPU: ladder, access patterns, right kernels, then the mutants."""
    access = [files.kernels.path(name) for name in files.ACCESS]
    right = [(path, set()) for path in [*files.LADDER, *access, *files.RIGHT]]
    return right + [(path, set(files.cases(path)[0].marks) or {"refused"}) for path in files.MUTANTS]


def batches(chosen):
    """[(paths, time limit)] that share a process."""
    calm = [path for path, kinds in chosen if kinds <= HARMLESS and path.stem != "chained_plain_flag"]
    alone = [(path, kinds) for path, kinds in chosen if path not in calm]
    jobs = [(calm[i : i + BATCH], TIME_LIMIT) for i in range(0, len(calm), BATCH)]
    slow = sorted(alone, key=lambda item: bool(item[1] & MAY_HANG or item[0].stem == "chained_plain_flag"))
    return jobs + [([path], HANG_LIMIT if kinds & MAY_HANG or path.stem == "chained_plain_flag" else TIME_LIMIT)
                   for path, kinds in slow]


def launcher(paths):
    return [sys.executable, str(ROOT / "tests/gpu/launch_case.py"), *map(str, paths)]


def sanitizer(tool, paths, spaces):
    """The command of one tool over some files; tool None is the launch alone."""
    if tool is None:
        return launcher(paths)
    options = ["--initcheck-address-space", "shared"] if tool == "initcheck" and spaces else []
    return ["compute-sanitizer", "--tool", tool, *options, "--show-backtrace", "no", *launcher(paths)]


def run(command, limit):
    """(output, exit code, or None when it had to be killed). The whole process group is killed, tool and launch."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:  # a pipe would wait for a survivor of the kill
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, cwd=ROOT)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
        output.seek(0)
        return output.read(), code


# A record of compute-sanitizer starts with "========= Error: ..." or "========= Invalid ..."; the lines that tell where
# are indented below it: "=========     at kernel+0x1a0 in file.cu:27".
RECORD = re.compile(r"^=========\s(?! )(?P<words>\S.*)$")
PLACE = re.compile(r"\bat (?P<kernel>[\w:<>, ]+?)(?:\([^)]*\))?\+0x[0-9a-f]+ in (?P<file>[^\s:]+):(?P<line>\d+)")
FINDING = re.compile(r"race reported|hazard|invalid __|misaligned|barrier error|uninitialized|out of (bounds|range)|"
                     r"divergent|invalid argument|stack|assert|fatal", re.IGNORECASE)


def records(output):
    """[{"words", "places": [(kernel, line)]}] of one tool's output, without its banner and its summary."""
    found = []
    for text in output.splitlines():
        if not text.startswith("========="):
            continue
        head = RECORD.match(text)
        if head:
            found.append({"words": head["words"], "places": []})
        place = PLACE.search(text)
        if place and found:
            spot = (place["kernel"].strip().split("::")[-1], int(place["line"]))
            if spot not in found[-1]["places"]:
                found[-1]["places"].append(spot)
    noise = re.compile("SUMMARY|^Program hit")  # totals, and the error code that the launch itself returned
    return [record for record in found if FINDING.search(record["words"]) and not noise.search(record["words"])]


def told(output):
    """{launch id: {"error", "first_bad"}} of what launch_case.py printed."""
    rows = [json.loads(line.split(" ", 1)[1]) for line in output.splitlines() if line.startswith("LAUNCHED ")]
    return {row.pop("id"): row for row in rows}


def run_tools(chosen, workers, spaces, raw, say):
    """{(file stem, tool): {"output", "code"}}; a batch that lost its context is run again file by file."""
    results, lock = {}, threading.Lock()
    jobs = [(tool, paths, limit) for paths, limit in batches(chosen) for tool in (None, *TOOLS)]
    jobs = [(tool, paths, limit) for tool, paths, limit in jobs
            if tool is None or "endless_loop" not in [path.stem for path in paths]]

    def job(tool, paths, limit):
        command = sanitizer(tool, paths, spaces)
        output, code = run(command, limit)
        if raw:
            name = f"{paths[0].stem}{'-and-more' if len(paths) > 1 else ''}-{tool or 'alone'}.txt"
            (raw / name).write_text(shlex.join(command) + "\n" + output, encoding="utf-8")
        rows = told(output)
        wanted = [case.id for path in paths for case in files.launches(path)]
        if len(paths) > 1 and (code is None or any(rows.get(name, {"error": "lost"})["error"] for name in wanted)):
            say(f"a batch of {len(paths)} under {tool or 'no tool'} lost its context: again one by one")
            for path in paths:
                job(tool, [path], limit)
            return
        with lock:
            for path in paths:
                results[path.stem, tool] = {"output": output, "code": code}

    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(job, *one) for one in jobs]:
            future.result()
    return results


def said(path, tool, result):
    """What one tool said about one file: {"verdict": silent | speaks | hangs | crash, "lines", "words"}."""
    if result is None:
        return {"verdict": "not run", "lines": [], "words": []}
    kernels = {case.kernel for case in files.launches(path)}
    mine = [r for r in records(result["output"]) if not r["places"] or kernels & {name for name, _ in r["places"]}]
    lines = sorted({line for r in mine for name, line in r["places"] if name in kernels})
    words = sorted({re.sub(r"0x[0-9a-f]+", "0x…", r["words"])[:160] for r in mine if r["places"]})
    if not words and len(told(result["output"])) <= 1:  # alone in its process: a record without a place is its own
        words = sorted({r["words"][:160] for r in mine})
    verdict = "speaks" if words else "hangs" if result["code"] is None else "silent"
    return {"verdict": verdict, "lines": lines, "words": words, "killed": result["code"] is None}


def alone(path, result):
    """What the GPU did without a tool: right | wrong at h[4] | hangs | the error's name."""
    if result is None or result["code"] is None:
        return "hangs" if result else "not run"
    rows = told(result["output"])
    mine = [rows.get(case.id, {"error": "lost", "first_bad": None}) for case in files.launches(path)]
    errors = [row["error"] for row in mine if row["error"]]
    if errors:
        return re.sub(r"^(\w+).*", r"\1", errors[0])
    bad = [row["first_bad"] for row in mine if row["first_bad"]]
    return f"wrong at {bad[0]}" if bad else "right" if any(case.expect for case in files.launches(path)) else "ran"


def ours(path):
    """Our findings on one file, over all its launches: [{"kind", "severity", "lines", "count"}] or the refusal."""
    found = {}
    for case in files.launches(path):
        try:
            report = files.check(case)
        except ValueError as error:
            return [{"kind": "refused", "severity": "error", "lines": [], "count": 1, "words": str(error)}]
        for finding in report.findings:
            row = found.setdefault((finding.kind, finding.severity), {"lines": set(), "count": 0})
            row["lines"] |= {line for line in (finding.line, finding.other_line) if line}
            row["count"] += finding.count
    return [{"kind": kind, "severity": severity, "lines": sorted(row["lines"]), "count": row["count"]}
            for (kind, severity), row in sorted(found.items())]


def agreement(mine, tools, gpu):
    """agree | ours only | tool only | other lines | both silent."""
    spoke = {name: row for name, row in tools.items() if row["verdict"] == "speaks"}
    if not mine:
        return "tool only" if spoke else "both silent"
    if mine[0]["kind"] == "refused":
        return "agree" if gpu not in ("ran", "right", "hangs") else "ours only"
    if not spoke:
        return "agree" if mine[0]["kind"] in ("endless-loop", "deadlock") and gpu == "hangs" else "ours only"
    lines = {line for row in spoke.values() for line in row["lines"]}
    our_lines = {line for row in mine for line in row["lines"]}
    return "agree" if not lines or lines & our_lines else "other lines"


def our_counters(report):
    """{(space, access, what): total}, atomics left out: ncu counts them elsewhere."""
    return {key: sum(getattr(row, key[2]) for row in report.lines if (row.space, row.access) == key[:2])
            for key in COUNTERS}


def ncu_command(paths, metrics, log):
    return ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--metrics", ",".join(metrics),
            "--log-file", str(log), *launcher(paths)]


def available_metrics():
    """The counters' base names that this ncu knows on this device."""
    output = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True, timeout=120, check=True).stdout
    return {line.split()[0] for line in output.splitlines() if line[:1].isalpha() and len(line.split()) > 1}


def ncu_rows(paths, metrics, log):
    """[{"Kernel Name": ..., metric: text}] of one run of ncu over all launches of some files."""
    output, code = run(ncu_command(paths, metrics, log), 240)
    if code != 0:
        seen = log.read_text(encoding="utf-8") if log.exists() else ""
        raise RuntimeError(f"ncu ended with {code}: {output[-2000:]}\n{seen[-2000:]}")
    text = log.read_text(encoding="utf-8")
    rows = [row for row in csv.DictReader(io.StringIO(text[text.index('"ID"') :])) if row["ID"]]  # one holds the units
    kernels = [case.kernel for path in paths for case in files.launches(path)]
    if [row["Kernel Name"].split("(")[0] for row in rows] != kernels:
        raise RuntimeError(f"ncu saw {[row['Kernel Name'] for row in rows]}, launched were {kernels}")
    return [{name: int(float(row[name].replace(",", ""))) for name in metrics} for row in rows]


def compared(case, mine, counted):
    """One row of the JSON's "counters"; mine: our_counters, counted: {metric: number} of both runs of ncu."""
    surplus = {access: counted[COUNTERS["shared", access, "wavefronts"]] - counted[name]
               for access, name in INSTRUMENTED.items()}
    lost = {access: min(max(number, 0), counted[ARBITRATION]) for access, number in surplus.items()}
    counters = {" ".join(key): {"ours": mine[key], "ncu": counted[name] - lost[key[1]] * (key[0] == "shared")}
                for key, name in COUNTERS.items()}
    return {"id": case.id, "counters": counters, "lost": {**lost, "arbitration": counted[ARBITRATION]},
            "equal": all(value["ours"] == value["ncu"] for value in counters.values())}


def run_ncu(paths, logs):
    """[{"id", "counters": {name: {"ours", "ncu"}}, "lost", "equal"}] for every launch of some files."""
    known = available_metrics()
    missing = sorted(name for metrics in RUNS for name in metrics if name.split(".")[0] not in known)
    if missing:
        raise RuntimeError(f"this ncu does not count {', '.join(missing)} on this GPU")
    runs = [ncu_rows(paths, metrics, logs / f"ncu_{number}.csv") for number, metrics in enumerate(RUNS)]
    cases = [case for path in paths for case in files.launches(path)]
    return [compared(case, our_counters(files.check(case)), {**first, **second})
            for case, first, second in zip(cases, *runs, strict=True)]


def refresh_ours(document, say):
    """Put what our side says today beside what the tools said then."""
    wanted = {row["id"] for row in document["counters"]}
    right = [path for path, kinds in launchable() if not kinds]
    cases = [case for path in right for case in files.launches(path) if case.id in wanted]
    mine = {case.id: our_counters(files.check(case)) for case in cases}
    for row in document["counters"]:
        for key in COUNTERS:
            counter, fresh = row["counters"].get(" ".join(key)), mine[row["id"]][key]
            if counter and counter["ours"] != fresh:
                say(f"{row['id']}: {' '.join(key)} was {counter['ours']}, is {fresh}, ncu {counter['ncu']}")
                counter["ours"] = fresh
        row["equal"] = all(value["ours"] == value["ncu"] for value in row["counters"].values())
    for row in document["rows"]:
        fresh = ours(ROOT / row["file"])
        if fresh != row["ours"]:
            say(f"{row['kernel']}: findings were {row['ours']}, are {fresh}")
            row["ours"] = fresh
            row["agree"] = agreement(fresh, row["tools"], row["alone"])


def version(program):
    output = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    return re.search(r"[Vv]ersion (\d[\d.]*)", output)[1]


def tool_rows(chosen, spaces, arguments, say):
    """The JSON's "rows": what ours and compute-sanitizer say about each file, and what the GPU does alone."""
    say("our side")
    with ProcessPoolExecutor(min(8, arguments.workers)) as pool:
        mine = dict(zip([path for path, _ in chosen], pool.map(ours, [path for path, _ in chosen]), strict=True))
    say("compute-sanitizer")
    results = run_tools(chosen, arguments.workers, spaces, arguments.raw, say)
    rows = []
    for path, kinds in chosen:
        tools = {tool: said(path, tool, results.get((path.stem, tool))) for tool in TOOLS}
        gpu = alone(path, results.get((path.stem, None)))
        rows.append({"file": path.relative_to(ROOT).as_posix(), "kernel": path.stem, "marked": sorted(kinds),
                     "ours": mine[path], "tools": tools, "alone": gpu, "agree": agreement(mine[path], tools, gpu)})
    return rows


def measure(arguments):
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    for program in ("compute-sanitizer", "ncu"):
        if shutil.which(program) is None:
            raise SystemExit(f"{program} is not on PATH: it comes with the CUDA toolkit")
    keep = arguments.missing or arguments.counters
    before = json.loads(arguments.out.read_text(encoding="utf-8")) if keep else {"rows": []}
    known = {row["kernel"] for row in before["rows"]} if arguments.missing else set()
    chosen = [(path, kinds) for path, kinds in launchable()
              if re.search(arguments.only, path.stem) and path.stem not in known]
    if arguments.raw:
        arguments.raw.mkdir(parents=True, exist_ok=True)
    text = subprocess.run(["compute-sanitizer", "--help"], capture_output=True, text=True, timeout=60, check=True)
    spaces = "initcheck-address-space" in text.stdout

    say("ncu")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    right = [path for path, kinds in chosen if not kinds]
    counters = run_ncu(right, arguments.raw or arguments.out.parent) if right else []
    rows = [] if arguments.counters else tool_rows(chosen, spaces, arguments, say)
    import cupy as cp

    device = cp.cuda.runtime.getDeviceProperties(0)
    document = {
        "device": device["name"].decode(),
        "compute_capability": f"{device['major']}.{device['minor']}",
        "driver": cp.cuda.runtime.driverGetVersion(),
        "nvrtc": list(cp.cuda.nvrtc.getVersion()),
        "compute_sanitizer": version("compute-sanitizer"),
        "ncu": version("ncu"),
        "date": datetime.date.today().isoformat(),
        "command": "python tests/gpu/compare_tools.py",
        "initcheck_shared": spaces,
        "rows": rows,
        "counters": counters,
    }
    if arguments.counters:
        again = {row["id"] for row in counters}
        before = {**before, "counters": [row for row in before["counters"] if row["id"] not in again]}
    if keep:
        document = joined(before, document)
    arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    say(f"wrote {arguments.out}")


def joined(before, fresh):
    """The rows of both, in the order of `launchable`. Raises ValueError if another device or tool counted the first."""
    for key in ("device", "driver", "nvrtc", "compute_sanitizer", "ncu", "initcheck_shared"):
        if before[key] != fresh[key]:
            raise ValueError(f"{key} was {before[key]!r} and is {fresh[key]!r} now: count all files again")
    order = [path.stem for path, _ in launchable()]
    return {**fresh, "rows": sorted(before["rows"] + fresh["rows"], key=lambda row: order.index(row["kernel"])),
            "counters": sorted(before["counters"] + fresh["counters"],
                               key=lambda row: order.index(row["id"].split("[")[0]))}


def reason(row):
    """Why NVIDIA's tools, or one that should, say less than we do about this row; empty when they do not."""
    if row["kernel"] in SILENCE_OF:
        return SILENCE_OF[row["kernel"]]
    return SILENCE.get(row["ours"][0]["kind"], "") if row["agree"] == "ours only" else ""


def counter_reason(row):
    """Why ncu counts something else in this launch; empty when it does not."""
    return "" if row["equal"] else COUNTED_ELSE.get(row["id"].split("[")[0], "")


def numbers(lines):
    return ", ".join(map(str, lines))


def folded(title, lines):
    return [f"<details><summary>{title}</summary>", "", *lines, "", "</details>"]


def kind_table(mutants):
    """One line for each kind of mistake: how many mutants we find, how many the tools find, and what they miss."""
    out = ["| mistake | mutants | found by ours | by NVIDIA's tools | what these miss, and why |", "|---" * 5 + "|"]
    for kind in sorted({kind for row in mutants for kind in row["marked"]}):
        rows = [row for row in mutants if kind in row["marked"]]
        spoke = [name for row in rows for name, tool in row["tools"].items() if tool["verdict"] == "speaks"]
        by = ", ".join(f"{name} {spoke.count(name)}" for name in TOOLS if name in spoke)
        refused = sum(bool(row["ours"]) and row["ours"][0]["kind"] == "refused" for row in rows)
        waits = sum(row["agree"] == "agree" and row["alone"] == "hangs" for row in rows)
        by = by or ("the driver refuses too" if refused else "not run: it hangs" if waits else "·")
        missed = {}
        for row in rows:
            if reason(row):
                missed.setdefault(reason(row), []).append(f"`{row['kernel']}`")
        why = "; ".join(f"{', '.join(names) if len(names) < 3 else f'{len(names)} of them'}: {text}"
                        for text, names in missed.items())
        out.append(f"| {kind} | {len(rows)} | {sum(bool(row['ours']) for row in rows)} | {by} | {why} |")
    return out


def race_lines(mutants):
    """(all, some, none): race mutants in which racecheck names all the lines that we name, some of them, or none."""
    counts = [0, 0, 0]
    for row in mutants:
        if "race" in row["marked"]:
            mine = {line for one in row["ours"] for line in one["lines"]}
            seen = mine & set(row["tools"]["racecheck"]["lines"])
            counts[0 if seen == mine else 1 if seen else 2] += 1
    return tuple(counts)


def lost_trips(counters):
    """A line of Markdown about the launches in which the hardware counted more trips than the addresses cause."""
    rows = [row for row in counters if row["lost"]["read"] or row["lost"]["write"]]
    if not rows:
        return []
    lost = sum(row["lost"]["read"] + row["lost"]["write"] for row in rows)
    told = sum(row["lost"]["arbitration"] for row in rows)
    names = ", ".join(dict.fromkeys(f"`{row['id'].split('[')[0]}`" for row in rows))
    return [
        f"* **Lost trips**: in {len(rows)} launch{'es' * (len(rows) > 1)} ({names}) the hardware counts {lost} more "
        "trips of shared memory, and as many more bank conflicts, than the addresses cause. They were lost to another "
        "access, such as a write to global memory, that reached the data banks first: ncu has a counter for that "
        f"(arbitration), which says {told}. How many differs from run to run; the table is without them.",
    ]


def summary(document):
    """The comparison in words and counts, as Markdown."""
    right = [row for row in document["rows"] if not row["marked"]]
    mutants = [row for row in document["rows"] if row["marked"]]
    clean = [row for row in mutants if row["marked"] == ["wrong-result"]]
    wrong = [row for row in mutants if row not in clean]
    quiet = sum(row["agree"] == "both silent" for row in right)
    unseen = sum(row["agree"] == "both silent" for row in clean)
    ours_only = [row for row in wrong if row["agree"] == "ours only"]
    every, some, none = race_lines(mutants)
    counters = document["counters"]
    reasons = {}
    for row in counters:
        if counter_reason(row):
            reasons.setdefault(counter_reason(row), []).append(row["id"].split("[")[0])
    equal = sum(row["equal"] for row in counters)
    out = [
        f"* **Right kernels**: ours and all four tools are silent about {quiet} of {len(right)}.",
        f"* **Mutants**: ours finds {sum(bool(row['ours']) for row in wrong)} of {len(wrong)}, NVIDIA's tools "
        f"{len(wrong) - len(ours_only)} (the driver's refusal and a hang included). {len(clean)} more are wrong by "
        f"their numbers alone: ours and the tools are silent about {unseen} of them, and comparing with float64 names "
        "the first bad element, on a CPU as on the GPU.",
        f"* **Races on shared memory**: racecheck names every line that ours names in {every} of {every + some + none} "
        f"mutants, some of the lines in {some}, none in {none}.",
        f"* **Counters**: {equal} of {len(counters)} launches agree with ncu in every counter. The other "
        f"{len(counters) - equal} do not, mostly because the checked mode counts the text and ncu what nvcc made of "
        "it:",
        *[f"  * {', '.join(f'`{name}`' for name in dict.fromkeys(names))}: {text}" for text, names in reasons.items()],
        *lost_trips(counters),
    ]
    return [*out, "", *kind_table(wrong)]


def render(document):
    """The Markdown between the marks of kernels_cu/README.md."""
    def finding(one):
        return f"{one['kind']}{' (warning)' * (one['severity'] == 'warning')} {numbers(one['lines'])}".strip()

    def tool(row):
        if row["verdict"] != "speaks":
            return {"silent": "·", "not run": ""}.get(row["verdict"], row["verdict"])
        return "speaks" + (f" ({numbers(row['lines'])})" if row["lines"] else "")

    table = ["A number is a line of the file; · means silent.", "",
             "| kernel | ours | alone on the GPU | " + " | ".join(TOOLS) + " | |", "|---" * (4 + len(TOOLS)) + "|"]
    for row in document["rows"]:
        found = "; ".join(finding(one) for one in row["ours"]) or "·"
        cells = [f"`{row['kernel']}`", found, row["alone"], *(tool(row["tools"][name]) for name in TOOLS),
                 row["agree"] + (f": {reason(row)}" if reason(row) else "")]
        table.append("| " + " | ".join(cells) + " |")
    names = [" ".join(key) for key in COUNTERS]
    counters = ["One number where ours and ncu's are the same, **ours / ncu's** where not.", "",
                "| launch | " + " | ".join(name.replace("_", " ") for name in names) + " |",
                "|---" * (1 + len(names)) + "|"]
    for row in document["counters"]:
        cells = [row["counters"].get(name) for name in names]
        shown = ["" if c is None else str(c["ours"]) if c["ours"] == c["ncu"] else f"**{c['ours']} / {c['ncu']}**"
                 for c in cells]
        counters.append(f"| `{row['id']}` | " + " | ".join(shown) + " |")
    return "\n".join([
        f"{document['device']}, {document['date']}, compute-sanitizer {document['compute_sanitizer']}, "
        f"ncu {document['ncu']}: `{document['command']}`", "", *summary(document), "",
        *folded(f"All {len(document['rows'])} kernels under every tool", table), "",
        *folded(f"All {len(document['counters'])} launches that were counted", counters)])


MARKS = ("<!-- compare_tools: begin -->", "<!-- compare_tools: end -->")


def write_table(out):
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    table = render(json.loads(out.read_text(encoding="utf-8")))
    README.write_text(f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT, help="the JSON")
    parser.add_argument("--raw", type=Path, help="a folder for the tools' own output")
    parser.add_argument("--workers", type=int, default=min(14, os.cpu_count() or 1), help="processes beside each other")
    parser.add_argument("--only", default="", help="a regular expression that file names must match")
    parser.add_argument("--missing", action="store_true", help="only files without a row in the JSON")
    parser.add_argument("--counters", action="store_true", help="only ncu's side of the JSON again, for all launches")
    parser.add_argument("--dry-run", action="store_true", help="list the commands")
    parser.add_argument("--ours", action="store_true", help="only our side of the JSON again; needs no GPU")
    parser.add_argument("--render", action="store_true", help="only write the table again")
    arguments = parser.parse_args()
    if arguments.dry_run:
        chosen = [(path, kinds) for path, kinds in launchable() if re.search(arguments.only, path.stem)]
        for paths, limit in batches(chosen):
            for tool in (None, *TOOLS):
                print(f"[{limit} s]", shlex.join(sanitizer(tool, paths, True)))
        for metrics in RUNS:
            print(shlex.join(ncu_command([path for path, kinds in chosen if not kinds], metrics, Path("ncu.csv"))))
        return
    if arguments.ours:
        document = json.loads(arguments.out.read_text(encoding="utf-8"))
        refresh_ours(document, lambda text: print(text, file=sys.stderr, flush=True))
        arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    elif not arguments.render:
        measure(arguments)
    if arguments.out == OUT:
        write_table(arguments.out)


if __name__ == "__main__":
    main()
