#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Are the verdicts of `infc bench --fail-if-slower` right? Compares a process of known work with itself and with one that does
# 3% more: the first must raise no alarm, the second must be found in 95 of 100 comparisons.
#
# usage: stat_check.sh INFC SPIN_PEER [RUNS] [RESULTS_FILE]
#
# RUNS comparisons of each kind (100). With a RESULTS_FILE outcomes are appended and summed up over calls, so that a shared
# machine can be used in short pieces; a comparison takes about a second. Exit status: 0 right, 4 wrong (judged from 100 on).

set -u
infc=$1 peer=$2 runs=${3:-100} results=${4:-}
same=20000 slower=20600
if [ -z "$results" ]; then
    results=$(mktemp) || exit 3
    trap 'rm -f "$results"' EXIT
fi

compare() { # compare KIND WORK SEED
    "$infc" bench --loop-peer="$peer $same" --loop-peer="$peer $2" --fail-if-slower=2% --rounds=100 --burst=2 --warm-up=0.05 \
        --seed="$3" --json >/dev/null 2>&1
    printf '%s %d\n' "$1" $? >>"$results"
}

i=0
while [ $i -lt "$runs" ]; do
    i=$((i + 1))
    compare same $same $i
    compare slower $slower $i
done

awk '
$2 != 0 && $2 != 4 { broken++; next }
{ n[$1]++; if ($2 == 4) alarms[$1]++ }
END {
    printf "equal work: %d alarms in %d comparisons; 3%% more work: found in %d of %d\n", alarms["same"], n["same"], alarms["slower"], n["slower"]
    if (broken) { printf "%d comparisons failed\n", broken; exit 3 }
    if (n["same"] >= 100 && (alarms["same"] > 0 || alarms["slower"] < 0.95 * n["slower"])) exit 4
}' "$results"
