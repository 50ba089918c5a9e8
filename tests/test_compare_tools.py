"""The script that compares with NVIDIA's tools, as far as it can be tested without a GPU."""
import json
import sys
from pathlib import Path

import kernel_files as files
import pytest

sys.path.insert(0, str(Path(__file__).parent / "gpu"))
import compare_tools  # noqa: E402

RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at v1_without_b0+0x190 in v1_without_b0.cu:23
=========     and Read access at v1_without_b0+0x2c0 in v1_without_b0.cu:26 [508 hazards]
=========
========= Warning: Race reported between Read access at other(float const *)+0x10 in other.cu:7
LAUNCHED {"id": "v1_without_b0", "error": null, "first_bad": "h[3]"}
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at one_past_the_end+0x90 in /tmp/a/one_past_the_end.cu:14
=========     by thread (58,0,0) in block (3,0,0)
=========     Access at 0x7f0000 is out of bounds
========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified launch failure" on CUDA API call
LAUNCHED {"id": "one_past_the_end", "error": "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure", "first_bad": null}
========= ERROR SUMMARY: 2 errors
"""


def path(stem):
    return files.TESTS / "mutants" / f"{stem}.cu"


def test_records_are_read_with_their_kernels_and_lines():
    race, other = compare_tools.records(RACECHECK)
    assert race["places"] == [("v1_without_b0", 23), ("v1_without_b0", 26)]
    assert other["places"] == [("other", 7)]
    assert [record["places"] for record in compare_tools.records(MEMCHECK)] == [[("one_past_the_end", 14)]]


def test_a_record_counts_for_the_kernel_that_it_names():
    said = compare_tools.said(path("v1_without_b0"), "racecheck", {"output": RACECHECK, "code": 0})
    assert said["verdict"] == "speaks" and said["lines"] == [23, 26]
    assert compare_tools.said(path("v2_without_b0"), "racecheck", {"output": "", "code": 0})["verdict"] == "silent"
    assert compare_tools.said(path("endless_loop"), "memcheck", {"output": "", "code": None})["verdict"] == "hangs"


def test_what_happened_without_a_tool_is_told_in_a_word():
    assert compare_tools.alone(path("v1_without_b0"), {"output": RACECHECK, "code": 0}) == "wrong at h[3]"
    assert compare_tools.alone(path("one_past_the_end"), {"output": MEMCHECK, "code": 0}) == "CUDA_ERROR_LAUNCH_FAILED"
    assert compare_tools.alone(path("endless_loop"), {"output": "", "code": None}) == "hangs"


def test_a_launch_that_may_kill_its_context_or_hang_is_alone_in_its_process():
    for paths, limit in compare_tools.batches(compare_tools.launchable()):
        kinds = {kind for one in paths if one in files.MUTANTS for case in files.cases(one) for kind in case.marks}
        assert len(paths) == 1 or kinds <= compare_tools.HARMLESS, paths
        assert limit < 60 or not kinds & compare_tools.MAY_HANG


def test_every_file_is_launched_once_a_tool():
    launched = [one for paths, _ in compare_tools.batches(compare_tools.launchable()) for one in paths]
    access = [path for path in files.kernels.FOLDER.glob("access_*.cu")]
    assert sorted(launched) == sorted([*files.LADDER, *access, *files.RIGHT, *files.MUTANTS])


def test_agreement_needs_a_common_line():
    mine = [{"kind": "race", "severity": "error", "lines": [3, 5], "count": 1}]
    speaks = {"racecheck": {"verdict": "speaks", "lines": [5]}, "memcheck": {"verdict": "silent", "lines": []}}
    assert compare_tools.agreement(mine, speaks, "right") == "agree"
    speaks["racecheck"]["lines"] = [9]
    assert compare_tools.agreement(mine, speaks, "right") == "other lines"
    speaks["racecheck"]["verdict"] = "silent"
    assert compare_tools.agreement(mine, speaks, "right") == "ours only"
    assert compare_tools.agreement([], speaks, "right") == "both silent"


def row(kernel, marked, ours_lines, agree, **tools):
    """A row of the JSON; tools {name: the lines it spoke of}."""
    said = {name: {"verdict": "speaks" if name in tools else "silent", "lines": tools.get(name, []), "words": []}
            for name in compare_tools.TOOLS}
    ours = [{"kind": marked, "severity": "error", "lines": ours_lines, "count": 1}] if ours_lines else []
    return {"kernel": kernel, "marked": [marked], "ours": ours, "tools": said, "alone": "ran", "agree": agree}


MUTANTS = [
    row("three", "race", [3, 5], "agree", racecheck=[3, 5, 9]),
    row("tree", "race", [3, 5, 8], "agree", racecheck=[3, 5]),
    row("atomic_and_plain", "race", [19, 21], "ours only"),
    row("first_flag", "global-race", [7, 9], "ours only"),
    row("second_flag", "global-race", [7, 9], "ours only"),
    row("third_flag", "global-race", [7, 9], "ours only"),
    row("behind_the_end", "out-of-bounds", [4], "agree", memcheck=[4]),
]


def test_the_lines_of_a_race_are_counted_as_all_some_or_none():
    assert compare_tools.race_lines(MUTANTS) == (1, 1, 1)


def test_each_kind_of_mistake_has_one_line_that_says_what_the_tools_miss():
    table = compare_tools.kind_table(MUTANTS)[2:]
    silent = compare_tools.SILENCE_OF["atomic_and_plain"]
    assert table == [
        f"| global-race | 3 | 3 | · | 3 of them: {compare_tools.SILENCE['global-race']} |",
        "| out-of-bounds | 1 | 1 | memcheck 1 |  |",
        f"| race | 3 | 3 | racecheck 2 | `atomic_and_plain`: {silent} |",
    ]


def test_the_summary_counts_what_ours_alone_finds():
    text = "\n".join(compare_tools.summary({"rows": MUTANTS, "counters": []}))
    assert "ours finds 7 of 7, NVIDIA's tools 3 " in text
    assert "every line that ours names in 1 of 3 mutants, some of the lines in 1, none in 1" in text


def test_trips_lost_to_another_access_are_no_bank_conflicts():
    (case,) = files.launches(path("../right/leader_pointer"))
    mine = dict.fromkeys(compare_tools.COUNTERS, 0) | {("shared", "read", "wavefronts"): 416}
    trips, conflicts = (compare_tools.COUNTERS["shared", "read", what] for what in ("wavefronts", "bank_conflicts"))
    counted = {name: 0 for names in compare_tools.RUNS for name in names}
    counted |= {trips: 424, conflicts: 8, compare_tools.INSTRUMENTED["read"]: 416, compare_tools.ARBITRATION: 8}
    row = compare_tools.compared(case, mine, counted)
    assert row["equal"] and row["lost"] == {"read": 8, "write": 0, "arbitration": 8}
    assert "1 launch (`leader_pointer`) the hardware counts 8 more" in compare_tools.lost_trips([row])[0]
    assert compare_tools.lost_trips([{**row, "lost": {"read": 0, "write": 0, "arbitration": 3}}]) == []
    for change in ({conflicts: 9}, {compare_tools.ARBITRATION: 7}, {compare_tools.INSTRUMENTED["read"]: 424}):
        assert not compare_tools.compared(case, mine, {**counted, **change})["equal"], change


@pytest.fixture
def document():
    if not compare_tools.OUT.exists():
        pytest.skip("no GPU run is committed yet")
    return json.loads(compare_tools.OUT.read_text(encoding="utf-8"))


def test_every_disagreement_has_its_reason(document):
    explained = ("agree", "both silent")
    assert [r["kernel"] for r in document["rows"] if r["agree"] not in explained and not compare_tools.reason(r)] == []
    assert [r["id"] for r in document["counters"] if not r["equal"] and not compare_tools.counter_reason(r)] == []


def test_every_lost_trip_was_lost_to_another_access(document):
    lost = [row["lost"] for row in document["counters"]]
    assert lost and all(row["read"] + row["write"] <= row["arbitration"] for row in lost)


def test_no_reason_is_left_over(document):
    """A reason that explains nothing any more would be read as if it did."""
    ours_only = [r for r in document["rows"] if r["agree"] == "ours only"]
    assert set(compare_tools.SILENCE_OF) <= {r["kernel"] for r in document["rows"]}
    general = {r["ours"][0]["kind"] for r in ours_only if r["kernel"] not in compare_tools.SILENCE_OF}
    assert set(compare_tools.SILENCE) == general
    differ = {r["id"].split("[")[0] for r in document["counters"] if not r["equal"]}
    assert set(compare_tools.COUNTED_ELSE) == differ


def test_the_right_kernels_are_right_on_the_gpu(document):
    right = [row for row in document["rows"] if not row["marked"]]
    assert [row["kernel"] for row in right if row["alone"] not in ("right", "ran")] == []


def test_the_table_in_the_readme_is_the_one_of_the_committed_numbers(document):
    text = compare_tools.README.read_text(encoding="utf-8")
    table = text.split(compare_tools.MARKS[0])[1].split(compare_tools.MARKS[1])[0].strip()
    assert table == compare_tools.render(document).strip()
    assert [row["kernel"] for row in document["rows"]] == [one.stem for one, _ in compare_tools.launchable()]


def test_our_side_is_counted_again_without_a_gpu(document):
    counters = [r for r in document["counters"] if r["id"] == "leader_pointer"]
    rows = [r for r in document["rows"] if r["kernel"] in ("leader_pointer", "v1_without_b0")]
    stale = {"counters": json.loads(json.dumps(counters)), "rows": json.loads(json.dumps(rows))}
    stale["counters"][0]["counters"]["shared read wavefronts"]["ours"] = 8
    stale["counters"][0]["equal"] = False
    stale["rows"][1].update(ours=[], agree="tool only")
    told = []
    compare_tools.refresh_ours(stale, told.append)
    assert stale == {"counters": counters, "rows": rows}
    assert told[0] == "leader_pointer: shared read wavefronts was 8, is 4, ncu 4" and len(told) == 2


def test_rows_of_new_files_are_put_among_the_old_ones(document):
    def rows(name, key, wanted):
        return [row for row in document[name] if (row[key].split("[")[0] == "leader_pointer") == wanted]

    old = {**document, "rows": rows("rows", "kernel", False), "counters": rows("counters", "id", False)}
    new = {**document, "rows": rows("rows", "kernel", True), "counters": rows("counters", "id", True)}
    assert len(new["rows"]) == 1 and compare_tools.joined(old, new) == document
    with pytest.raises(ValueError, match=r"ncu was '1\.0' and is"):
        compare_tools.joined({**old, "ncu": "1.0"}, new)
