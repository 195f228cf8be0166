#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All checks other than the tests. Each part prints ok or its problems, and all parts run.
# Needs a build in build/ (or $1): clang-tidy reads its compile commands, the documents' examples run its programs.
#
#   tools/lint/lint.sh            check
#   tools/lint/lint.sh --fix      let clang-format and ruff rewrite the files
cd "$(dirname "$0")/../.." || exit 1
fix=0
[ "${1:-}" = --fix ] && fix=1 && shift
build=${1:-build}
python=.venv/bin/python
[ -x "$python" ] || python=python3
status=0

part() { # name, command...
  local name=$1 begin=$SECONDS
  shift
  "$@" || { status=1 && echo "lint: $name FAILED"; }
  [ $((SECONDS - begin)) -lt 5 ] || echo "lint: $name took $((SECONDS - begin)) s"
}

format() {
  local files
  mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.h' '*.cc' '*.cu' '*.cuh' '*.c')
  if [ "$fix" = 1 ]; then clang-format -i "${files[@]}"; else clang-format --dry-run -Werror "${files[@]}"; fi &&
    echo "clang-format: ok"
}

ruff() {
  if [ "$fix" = 1 ]; then
    "$python" -m ruff check --fix -q . && "$python" -m ruff format -q .
  else
    "$python" -m ruff check -q . && "$python" -m ruff format -q --check .
  fi && echo "ruff: ok"
}

# clang-tidy needs the compile command of each file (cmake/together.cmake): a build folder that is configured, not built.
tidy() {
  cmake --preset release -B "$build/each" -DTITHE_TOGETHER=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
    -DPython_EXECUTABLE="$(realpath -s "$(command -v "$python")")" >"$build/each.log" 2>&1 || { cat "$build/each.log"; return 1; }
  "$python" tools/lint/run_clang_tidy.py "$build/each"
}

part clang-format format
part ruff ruff
part style "$python" tools/lint/check_style.py
part floors "$python" tools/lint/check_floors.py
part rooms "$python" tools/lint/check_rooms.py
part links "$python" tools/lint/check_links.py
part glossary "$python" tools/lint/check_glossary.py
part clang-tidy tidy
part "codec tables" "$python" tools/lint/codec_tables.py
part "session lists" "$python" tools/lint/session_lists.py
part choosing "$python" tools/lint/choosing.py
part "python docs" "$python" tools/lint/python_api.py
part site "$python" tools/make_docs.py
part "doc examples" "$python" tools/lint/run_doc_examples.py
if [ "$status" -eq 0 ]; then echo "lint: green"; else echo "lint: FAILED"; fi
exit "$status"
