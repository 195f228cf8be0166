#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and times gradients on a GPU, in one command, on a bare Debian machine with a CUDA driver.
#
#   tools/gpu_check.sh                     sets up, builds, runs two ranks; on one GPU both share it
#   tools/gpu_check.sh --python PATH       installs nothing: that interpreter has torch for CUDA, numpy and nanobind,
#                                          the machine the libraries that tools/setup.sh lists
#   tools/gpu_check.sh --parts device      the device seam and the programs' kernels alone (docs/device.md); writes
#                                          build/gpu_device.json
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

device=cuda python='' parts=torch rest=()
while [ $# -gt 0 ]; do
  case "$1" in
    --device) device=${2:?--device needs cuda or cpu}; shift 2 ;;
    --parts) parts=${2:?--parts needs torch or device}; shift 2 ;;
    --python) python=${2:?--python needs a path}; shift 2 ;;
    -h | --help) sed -n '3,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) rest+=("$1"); shift ;;
  esac
done

if [ "$device" = cuda ]; then # before anything is installed or built
  { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; } || compgen -G '/dev/nvidia[0-9]*' >/dev/null ||
    no_gpu 'nvidia-smi lists none and there is no /dev/nvidia0'
fi

if [ "$parts" = device ]; then # on this machine's driver, and the NVRTC that TITHE_NVRTC names or a Python carries
  mkdir -p build
  if [ -z "${TITHE_NVRTC:-}" ]; then
    for python in ${python:+"$python"} .venv/bin/python python3; do
      folder=$("$python" -c 'import importlib.util as u; print(*u.find_spec("nvidia").submodule_search_locations)' 2>/dev/null) || continue
      TITHE_NVRTC=$(find "$folder" -name 'libnvrtc.so.1[23]' -print -quit)
      [ -z "$TITHE_NVRTC" ] || break
    done
    export TITHE_NVRTC
  fi
  say "building the tests of the device seam; NVRTC: ${TITHE_NVRTC:-of the system}"
  cmake -S . -B build/gpu-device -G Ninja -DCMAKE_BUILD_TYPE=Release -DTITHE_BENCH=OFF -DTITHE_CLI=OFF >build/gpu_device.log 2>&1 &&
    cmake --build build/gpu-device --target device_tests >>build/gpu_device.log 2>&1 || {
    tail -n 20 build/gpu_device.log
    say 'the build failed: build/gpu_device.log'
    exit 1
  }
  [ "$device" = cpu ] || export TITHE_TEST_GPU=real
  exec build/gpu-device/tests/device_tests --gtest_brief=1 --gtest_output=json:build/gpu_device.json
fi
[ "$parts" = torch ] || { say "no part '$parts': there are torch and device" && exit 2; }

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
