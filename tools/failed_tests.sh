#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the failed tests of the last ctest run in a build folder, each with the lines that give the reason.
# Fails if no test failed, for example after an error of the compiler.
set -euo pipefail
log=${1:?usage: failed_tests.sh BUILD}/Testing/Temporary
[ -s "$log/LastTestsFailed.log" ]
cat "$log/LastTestsFailed.log"
grep -hE -A 8 ': Failure$|^E   |^FAILED |^\[  FAILED  \]|[Ss]anitizer' "$log/LastTest.log" | head -n 200 || true
