#!/usr/bin/env bash
# compute-sanitizer's four tools over every kernel of the ops at small shapes. Needs a GPU, torch, CuPy.
#     bash tests/gpu/sanitize_ops.sh [folder for logs [op ...]]      ops: scan, selective (both)
# One line a tool and op; the exit code tells whether all were clean.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:-build/gpu/sanitize}")
mkdir -p "$out"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTORCH_NO_CUDA_MEMORY_CACHING=1
python=${PYTHON:-python3}
shares=${SHARES:-4} # processes a tool
status=0

# Only our kernels: torch's own are not what is judged here. (initcheck must see who wrote our inputs: all kernels.)
declare -A kernels=([scan]="regex=^(scan_|carry_)" [selective]="regex=^selective_")

each() { # op, log name, command ...: the driver's shares under it, all at once
    local op=$1 log=$2 failed=0 pids=() share
    shift 2
    for ((share = 0; share < shares; share++)); do
        "$@" "$python" "tests/gpu/drive_$op.py" "$share" "$shares" >"$out/$log.$share.log" 2>&1 &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
    return $failed
}

clean() { # op, tool, arguments
    local op=$1 tool=$2 begin=$SECONDS verdict=clean
    shift 2
    each "$op" "$op.$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$@" || verdict=FAILED
    printf '%-10s %-10s %s, %d s: %s\n' "$op" "$tool" $verdict $((SECONDS - begin)) \
        "$(grep -h 'ERROR SUMMARY\|RACECHECK SUMMARY' "$out/$op.$tool".*.log | sort | uniq -c | tr '\n' ';')"
    [ $verdict = clean ]
}

ops=("${@:2}")
[ ${#ops[@]} -gt 0 ] || ops=(scan selective)
for op in "${ops[@]}"; do
    [ "${kernels[$op]:-}" ] || { echo "op is $op: it must be one of ${!kernels[*]}"; exit 2; }
    # Compile once, so that the tools find everything in CuPy's cache.
    each "$op" "$op.plain" && echo "$op right" || { status=1; echo "$op plain FAILED"; }
    pids=()
    clean "$op" memcheck --kernel-name "${kernels[$op]}" & pids+=($!)
    clean "$op" racecheck --kernel-name "${kernels[$op]}" & pids+=($!)
    clean "$op" synccheck --kernel-name "${kernels[$op]}" & pids+=($!)
    clean "$op" initcheck & pids+=($!)
    for pid in "${pids[@]}"; do wait "$pid" || status=1; done
done
exit $status
