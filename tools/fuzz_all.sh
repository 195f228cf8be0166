#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs libFuzzer on every target of the fuzz preset, each for a time, and prints the results. Exits with 1 if a
# target found a defect: the input is in $OUT/<target>/found, and `<binary> <input>` repeats it.
#
#   TARGETS="topk frame"   which, in this order     (default: every binary)
#   SECONDS_EACH=600       processor time per target
#   SECONDS_MOST=2400      clock per target, for a machine that has other work (default: 4 times SECONDS_EACH)
#   JOBS=2                 targets at a time
#   BIN=build/fuzz/tests   folder of the binaries
#   OUT=build/fuzz/runs    corpus, findings and log of each target; a later run continues from that corpus
#   KEEP=1                 adds to tests/fuzz/corpus inputs that reach code which neither it nor the seeds reach: at most
#                          KEEP_MOST per target, the longest of those up to KEEP_BYTES
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
SECONDS_EACH=${SECONDS_EACH:-600}
export SECONDS_EACH SECONDS_MOST=${SECONDS_MOST:-$((4 * SECONDS_EACH))} BIN=${BIN:-build/fuzz/tests} OUT=${OUT:-build/fuzz/runs} here
JOBS=${JOBS:-$(nproc)}
KEEP_BYTES=${KEEP_BYTES:-256}
KEEP_MOST=${KEEP_MOST:-12}

TARGETS=${TARGETS:-$(find "$BIN" -maxdepth 1 -name 'fuzz_*' -type f -executable ! -name fuzz_tests -printf '%f\n' | sed 's/^fuzz_//' | sort)}
[ -n "$TARGETS" ] || {
  echo "fuzz: no fuzz_* in $BIN (cmake --preset fuzz && cmake --build --preset fuzz)" >&2
  exit 2
}

# Runs in slices of clock time until the processor time is used up. Each slice continues from the corpus of the previous one.
run_one() {
  local target=$1 dir=$OUT/$1 corpus=$here/tests/fuzz/corpus/$1 status=0 begin=$SECONDS hundredths=0 executions=0 slice used
  local TIMEFORMAT=%2U
  mkdir -p "$dir/corpus" "$dir/seeds" "$dir/found" "$corpus"
  rm -f "$dir/found/"* "$dir/log" # a finding of an earlier run is found again: its input is in the corpus, or similar to one
  while [ "$status" -eq 0 ] && [ "$hundredths" -lt $((100 * SECONDS_EACH)) ] && [ $((SECONDS - begin)) -lt "$SECONDS_MOST" ]; do
    slice=$((SECONDS_EACH - hundredths / 100))
    [ "$slice" -le 300 ] || slice=300
    { time TITHE_FUZZ_SEEDS=$dir/seeds "$BIN/fuzz_$target" "$dir/corpus" "$dir/seeds" "$corpus" \
      -max_total_time="$slice" -rss_limit_mb=1500 -timeout=120 -reload=0 -print_final_stats=1 -verbosity=1 \
      -artifact_prefix="$dir/found/" >"$dir/slice" 2>&1 || status=$?; } 2>"$dir/cpu"
    cat "$dir/slice" >>"$dir/log"
    used=$(tr -d . <"$dir/cpu")
    hundredths=$((hundredths + 10#$used))
    used=$(sed -n 's/^stat::number_of_executed_units: *//p' "$dir/slice")
    executions=$((executions + ${used:-0}))
  done
  rmdir --ignore-fail-on-non-empty "$corpus" 2>/dev/null || true
  local coverage found
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$dir/log" | tail -n 1)
  found=$(find "$dir/found" -type f | wc -l)
  [ "$status" -eq 0 ] || [ "$found" -gt 0 ] || found="ended with $status"
  printf '%-12s %8s %8s %12s %9s  %s\n' "$target" $((hundredths / 100)) $((SECONDS - begin)) "$executions" "${coverage:-?}" "$found" |
    tee "$dir/row"
}
export -f run_one

printf '%-12s %8s %8s %12s %9s  %s\n' target cpu_s clock_s executions coverage found
# shellcheck disable=SC2086
printf '%s\n' $TARGETS | xargs -P "$JOBS" -I{} bash -euo pipefail -c 'run_one {}'

keep() {
  local target=$1 kept=tests/fuzz/corpus/$1 known=$OUT/$1/known short=$OUT/$1/short file count=0
  rm -rf "$known" "$short" && mkdir -p "$known" "$short" "$kept"
  find "$kept" "$OUT/$target/seeds" -type f -exec cp -t "$known" {} +
  find "$OUT/$target/corpus" -type f -size -"$((KEEP_BYTES + 1))"c -exec cp -t "$short" {} +
  ls "$known" >"$known.list"
  "$BIN/fuzz_$target" -set_cover_merge=1 -use_counters=0 -rss_limit_mb=1500 "$known" "$short" >"$OUT/$target/merge.log" 2>&1
  while read -r file; do
    [ "$count" -lt "$KEEP_MOST" ] || break
    cp "$known/$file" "$kept/grown_${file:0:8}"
    count=$((count + 1))
  done < <(cd "$known" && ls -S | grep -vxFf ../known.list)
  rmdir --ignore-fail-on-non-empty "$kept" 2>/dev/null || true
  echo "fuzz: $target: $count inputs more in $kept"
}
if [ "${KEEP:-0}" = 1 ]; then
  for target in $TARGETS; do keep "$target"; done
fi

clean=1
for target in $TARGETS; do
  read -r _ _ _ _ _ found <"$OUT/$target/row"
  [ "$found" = 0 ] || {
    clean=0
    echo "fuzz: $target: $found in $OUT/$target/found, log $OUT/$target/log" >&2
  }
done
[ "$clean" = 1 ]
