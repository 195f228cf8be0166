#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and times gradients on a GPU, in one command, on a bare Debian machine with a CUDA driver.
#
#   tools/gpu_check.sh                     sets up, builds, runs all parts; on one GPU two ranks share it
#   tools/gpu_check.sh --parts seam,torch  some of these parts:
#       device      every program's kernels, compiled and compared with the interpreter's bits
#       seam        memory, streams, events, copies: the promises of the tests' emulated driver, on the real driver
#       session     sessions whose buckets are in GPU memory: laws, states, NaN, mixed ranks, against the host's bits
#       torch       DDP with gradients in GPU memory against the CPU's bits, fully_shard against FSDP2's, step times
#       sanitizer   compute-sanitizer's four tools on small kernels, if it is installed
#       speed       kernels beside a copy within the GPU's memory
#   tools/gpu_check.sh --packed DIR        builds nothing: uses the programs that tools/gpu_pack.sh packed, for all parts but torch
#   tools/gpu_check.sh --python PATH       installs nothing: that interpreter has torch for CUDA, numpy and nanobind,
#                                          and the machine has the libraries that tools/setup.sh lists
#   tools/gpu_check.sh --device cpu        the same without a GPU, to test the script itself
#   other options go to tools/gpu_check.py: --types, --codecs, --timed, --values, --steps, --rounds, --out
#
# Each part has at most three minutes after the build, and writes build/gpu_PART.json when it ends, times out or is
# left out.
# Ends with 0 if all is equal to the CPU's bits, 1 if not, 3 if there is no GPU: then nothing was checked.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."

say() { printf 'gpu_check: %s\n' "$*"; }
no_gpu() {
  say "no GPU here: nothing was checked ($*)"
  exit 3
}

known=device,seam,session,torch,sanitizer,speed
device=cuda python='' parts='' packed='' rest=()
while [ $# -gt 0 ]; do
  case "$1" in
    --device) device=${2:?--device needs cuda or cpu}; shift 2 ;;
    --parts) parts=${2:?"--parts needs some of $known"}; shift 2 ;;
    --packed) packed=$(cd "$here" && realpath "${2:?--packed needs a folder}"); shift 2 ;;
    --python) python=${2:?--python needs a path}; shift 2 ;;
    -h | --help) sed -n '3,23s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) rest+=("$1"); shift ;;
  esac
done
[ -n "$parts" ] || { [ -n "$packed" ] && parts=device,seam,session,sanitizer,speed || parts=$known; }
IFS=, read -ra chosen <<<"$parts"
for part in "${chosen[@]}"; do
  case ",$known," in *",$part,"*) ;; *) say "no part '$part': there are $known" && exit 2 ;; esac
done
[ -z "$packed" ] || case ",$parts," in *,torch,*) say "part torch is not in a pack: it is run where the tree is" && exit 2 ;; esac
for program in device_tests conformance_tests device_speed; do
  [ -z "$packed" ] || [ -x "$packed/bin/$program" ] || { say "no bin/$program in $packed: tools/gpu_pack.sh makes it" && exit 2; }
done

if [ "$device" = cuda ]; then # before the script installs or builds anything
  { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; } || compgen -G '/dev/nvidia[0-9]*' >/dev/null ||
    no_gpu 'nvidia-smi lists none and there is no /dev/nvidia0'
fi
mkdir -p build
failed=()
part_ends=0 # end of the part's three minutes
within() { # COMMAND: within the rest of the three minutes
  local left=$((part_ends - SECONDS)) status=0
  [ $left -gt 0 ] || return 124
  timeout "$left" "$@" || status=$?
  [ $status -ne 124 ] || say "three minutes are over" >&2
  return $status
}

# ---- Programs in C++: built here, or packed

binaries=''
find_nvrtc() { # the library that TITHE_NVRTC names, else the packed one, else the one of a Python
  [ -z "${TITHE_NVRTC:-}" ] || return 0
  local found='' folder=''
  if [ -n "$packed" ]; then
    found=$(find "$packed" -name 'libnvrtc.so.1[23]' -print -quit)
  fi
  for p in ${python:+"$python"} .venv/bin/python .setup/nvrtc-venv/bin/python python3; do
    [ -z "$found" ] || break
    folder=$("$p" -c 'import importlib.util as u; print(*u.find_spec("nvidia").submodule_search_locations)' 2>/dev/null) || continue
    found=$(find "$folder" -name 'libnvrtc.so.1[23]' -print -quit)
  done
  export TITHE_NVRTC=$found
}
need_binaries() {
  [ -z "$binaries" ] || return 0
  find_nvrtc
  say "NVRTC: ${TITHE_NVRTC:-of the system}"
  [ -n "$TITHE_NVRTC" ] || unset TITHE_NVRTC
  if [ -n "$packed" ]; then
    binaries=$packed/bin
    export TITHE_TEST_SOURCE=$packed
    export LD_LIBRARY_PATH=$packed/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  else
    say 'building the tests of the device seam'
    cmake -S . -B build/gpu-device -G Ninja -DCMAKE_BUILD_TYPE=Release -DTITHE_CLI=OFF >build/gpu_device.log 2>&1 &&
      cmake --build build/gpu-device --target device_tests conformance_tests device_speed >>build/gpu_device.log 2>&1 || {
      tail -n 20 build/gpu_device.log
      say 'the build failed: build/gpu_device.log'
      exit 1
    }
    mkdir -p build/gpu-device/bin
    ln -sf ../tests/device_tests ../tests/conformance_tests ../lab/bench/device_speed build/gpu-device/bin/
    binaries=$PWD/build/gpu-device/bin
  fi
  [ "$device" = cpu ] || export TITHE_TEST_GPU=real
}
tests() { # PART BINARY FILTER: gtest's report becomes the part's JSON
  within "$binaries/$2" --gtest_brief=1 --gtest_filter="$3" --gtest_output="json:build/gpu_$1.json"
}

run_device() { tests device device_tests '*Programs*:*FirstPhases*:*DeviceProgramSuite*:GoldenFrames*'; }
run_seam() { tests seam device_tests 'DeviceSeam.*:Nvrtc.*'; }
run_session() {
  tests session device_tests '*OnGpus*:*Codecs*' && tests session_laws conformance_tests 'Gpus/*'
}
run_sanitizer() {
  local tool bad=0 said=build/gpu_sanitizer.txt
  command -v compute-sanitizer >/dev/null || {
    say 'compute-sanitizer is not installed: part sanitizer was left out'
    echo '{"left_out": "compute-sanitizer is not installed"}' >build/gpu_sanitizer.json
    return 0
  }
  [ "$device" = cuda ] || {
    say 'compute-sanitizer needs a GPU: part sanitizer was left out'
    echo '{"left_out": "there is no GPU"}' >build/gpu_sanitizer.json
    return 0
  }
  : >"$said"
  for tool in memcheck racecheck initcheck synccheck; do
    within timeout 45 compute-sanitizer --tool "$tool" --error-exitcode 9 "$binaries/device_tests" --gtest_brief=1 \
      --gtest_filter='*DeviceProgramSuite*LanesShareIt*:*MatchTheInterpreter/*_fp8_0:*MatchTheInterpreter/*_topk_0' >>"$said" 2>&1 ||
      { bad=1 && say "compute-sanitizer --tool $tool: $said"; }
  done
  printf '{"tools": "memcheck racecheck initcheck synccheck", "clean": %s}\n' "$([ $bad -eq 0 ] && echo true || echo false)" >build/gpu_sanitizer.json
  return $bad
}
run_speed() {
  local sizes=(25000000 300000000)
  [ "$device" = cuda ] || { sizes=(20000) && export TITHE_CUDA=${TITHE_CUDA:-$PWD/build/gpu-device/tests/libfake_cuda.so} TITHE_NVRTC=$PWD/build/gpu-device/tests/libfake_nvrtc.so; }
  within "$binaries/device_speed" --values "${sizes[@]}" >build/gpu_speed.json
}

# ---- Python

has_cuda() { "$1" -c 'import sys, torch; sys.exit(torch.version.cuda is None)' 2>/dev/null; }
run_torch() {
  if [ -z "$python" ]; then
    tools/setup.sh build
    python=$PWD/.venv/bin/python
    if [ "$device" = cuda ] && ! has_cuda "$python"; then # the package index offered torch for the CPU first
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
    # If torch is missing, the last line of the error gives the reason.
    why=$("$python" -c 'import torch; print(torch.version.cuda and torch.cuda.is_available() and "yes" or f"torch {torch.__version__} sees none")' 2>&1 | tail -n 1) || true
    [ "$why" = yes ] || no_gpu "$why"
  fi
  say 'building the Python module'
  local log=build/gpu_check.log
  cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DTITHE_PYTHON=ON -DTITHE_TESTS=OFF -DTITHE_BENCH=OFF \
    -DTITHE_CLI=OFF -DPython_EXECUTABLE="$python" >"$log" 2>&1 &&
    cmake --build build/gpu --target tithe_core >>"$log" 2>&1 || {
    tail -n 20 "$log"
    say "the build failed: $log"
    return 1
  }
  part_ends=$((SECONDS + 180))
  PYTHONPATH=$PWD/python within "$python" tools/gpu_check.py --device "$device" --out build/gpu_torch.json "${rest[@]}"
}

for part in "${chosen[@]}"; do
  [ "$part" = torch ] || need_binaries
  say "part $part"
  rm -f "build/gpu_$part.json"
  part_ends=$((SECONDS + 180)) status=0
  "run_$part" || status=$?
  [ $status -eq 0 ] || failed+=("$part")
  [ -s "build/gpu_$part.json" ] || printf '{"ended_with": %d, "cut_off": %s}\n' "$status" "$([ "$status" -eq 124 ] && echo true || echo false)" >"build/gpu_$part.json"
done
[ ${#failed[@]} -eq 0 ] || { say "not as on the CPU: ${failed[*]}" && exit 1; }
say "all parts passed: $parts"
