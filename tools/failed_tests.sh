#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the last run of ctest in a build folder found wrong: the names of its failed tests and the lines that say why.
# Fails where no test failed, as when something did not compile.
set -euo pipefail
log=${1:?usage: failed_tests.sh BUILD}/Testing/Temporary
[ -s "$log/LastTestsFailed.log" ]
cat "$log/LastTestsFailed.log"
grep -hE -A 8 ': Failure$|^E   |^FAILED |^\[  FAILED  \]|[Ss]anitizer' "$log/LastTest.log" | head -n 200 || true
