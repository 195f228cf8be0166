#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and times gradients on a GPU, in one command, on a bare Debian machine with a CUDA driver.
#
#   tools/gpu_check.sh                     sets up, builds, runs two ranks; on one GPU both share it
#   tools/gpu_check.sh --python PATH       installs nothing: that interpreter has torch for CUDA, numpy and nanobind,
#                                          the machine the libraries that tools/setup.sh lists
#   tools/gpu_check.sh --device cpu        the same without a GPU: tries the script, says nothing about GPUs
#   other options go to tools/gpu_check.py: --types, --codecs, --timed, --values, --steps, --rounds, --out
#
# Ends with 0 if all is equal to the CPU's bits, 1 if not, 3 if there is no GPU: then nothing was checked.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'gpu_check: %s\n' "$*"; }
no_gpu() {
  say "no GPU here: nothing was checked ($*)"
  exit 3
}

device=cuda python='' rest=()
while [ $# -gt 0 ]; do
  case "$1" in
    --device) device=${2:?--device needs cuda or cpu}; shift 2 ;;
    --python) python=${2:?--python needs a path}; shift 2 ;;
    -h | --help) sed -n '3,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) rest+=("$1"); shift ;;
  esac
done

if [ "$device" = cuda ]; then # before anything is installed or built
  { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; } || compgen -G '/dev/nvidia[0-9]*' >/dev/null ||
    no_gpu 'nvidia-smi lists none and there is no /dev/nvidia0'
fi

has_cuda() { "$1" -c 'import sys, torch; sys.exit(torch.version.cuda is None)' 2>/dev/null; }

if [ -z "$python" ]; then
  tools/setup.sh build
  python=$PWD/.venv/bin/python
  if [ "$device" = cuda ] && ! has_cuda "$python"; then # the index offered torch for the CPU first
    python=$PWD/build/gpu-venv/bin/python
    if ! has_cuda "$python"; then
      say 'virtual environment with torch for CUDA in build/gpu-venv'
      "${PYTHON:-python3}" -m venv build/gpu-venv
      sed -E 's/^(torch)==/\1===/' tools/requirements.txt >build/gpu-venv/requirements.txt
      "$python" -m pip install --disable-pip-version-check -q -r build/gpu-venv/requirements.txt
    fi
  fi
fi
if [ "$device" = cuda ]; then
  # Without torch, the last line of the error says so.
  why=$("$python" -c 'import torch; print(torch.version.cuda and torch.cuda.is_available() and "yes" or f"torch {torch.__version__} sees none")' 2>&1 | tail -n 1) || true
  [ "$why" = yes ] || no_gpu "$why"
fi

say 'building the Python module'
log=build/gpu_check.log
mkdir -p build
cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DTITHE_PYTHON=ON -DTITHE_TESTS=OFF -DTITHE_BENCH=OFF \
  -DTITHE_CLI=OFF -DPython_EXECUTABLE="$python" >"$log" 2>&1 &&
  cmake --build build/gpu --target tithe_core >>"$log" 2>&1 || {
  tail -n 20 "$log"
  say "the build failed: $log"
  exit 1
}
PYTHONPATH=$PWD/python exec "$python" tools/gpu_check.py --device "$device" "${rest[@]}"
