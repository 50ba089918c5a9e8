#!/usr/bin/env bash
# Everything that needs a GPU, in one go: the marked tests, all notebooks against their stored text, NVIDIA's tools beside
# ours and over the ops, the numbers of notebooks 03, 06 and 08, the speed of the ops. Needs torch, CuPy, nbval, ncu and
# compute-sanitizer.
#     bash tests/gpu/run_all.sh [folder for logs and results [part ...]]     all parts, or those that are named
# It ends with one line a part; the exit code tells whether all passed.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:-build/gpu}")
mkdir -p "$out"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
python=${PYTHON:-python3}
wanted=" ${*:2} "
workers=${WORKERS:-4}
status=0

part() { # name, command ...
    local name=$1 begin=$SECONDS code=0
    shift
    case "$wanted" in "  " | *" $name "*) ;; *) return 0 ;; esac
    "$@" >"$out/$name.log" 2>&1 || code=$?
    printf '%-12s %s, %d s: %s\n' "$name" "$([ $code = 0 ] && echo ok || echo "FAILED ($code)")" $((SECONDS - begin)) \
        "$(tail -n 1 "$out/$name.log")"
    return $code
}

part tests "$python" -m pytest -q -m gpu tests -n "$workers" || status=1
part notebooks "$python" -m pytest -q notebooks --nbval --nbval-current-env -n "$workers" --dist loadfile || status=1
part tools "$python" tests/gpu/compare_tools.py --out "$out/simt_vs_tools.json" --raw "$out/tools" || status=1
part wide "$python" tests/gpu/wide_reads.py --out "$out/simt_wide_reads.json" || status=1
part sanitizer bash tests/gpu/sanitize_ops.sh "$out/sanitizer" || status=1
part machine "$python" -m ssmlab.lab.machine "$out/machine.json" || status=1
part counters "$python" -m ssmlab.lab.counters "$out/ncu_selective.json" || status=1
part numerics "$python" -m ssmlab.lab.numerics "$out/numerics.json" || status=1
part bench "$python" -m ssmlab.bench --output "$out" || status=1
exit $status
