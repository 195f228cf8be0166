#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs the files that tools/gpu_check.sh needs, except torch, for a machine with a GPU and without network and compiler.
#
#   tools/gpu_pack.sh [FILE]               writes gpu_pack.tar.xz, below 64 MiB
#   tar xf gpu_pack.tar.xz && gpu_pack/tools/gpu_check.sh --packed gpu_pack
#
# Contents: the tests' programs with the libraries that they name, texts of programs, and NVRTC if
# `tools/setup.sh nvrtc` has installed it and it fits. A package built on Debian 12 runs on Debian 12 and later.
set -euo pipefail
file=$(realpath -m "${1:-gpu_pack.tar.xz}")
cd "$(dirname "$0")/.."
most=$((64 << 20))

cmake -S . -B build/gpu-device -G Ninja -DCMAKE_BUILD_TYPE=Release -DTITHE_CLI=OFF >build/gpu_pack.log
cmake --build build/gpu-device --target device_tests conformance_tests device_speed >>build/gpu_pack.log
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pack=$work/gpu_pack
mkdir -p "$pack"/{bin,lib,tools}
cp build/gpu-device/tests/{device_tests,conformance_tests} build/gpu-device/lab/bench/device_speed "$pack/bin/"
strip "$pack"/bin/*
# The C library and the driver's libraries come from the machine.
ldd "$pack"/bin/* | awk '$2 == "=>" && $3 ~ "^/" {print $3}' | sort -u |
  grep -Ev '/(libc|libm|libdl|libpthread|librt|libresolv|ld-linux.*|libcuda)\.so' | xargs -I{} cp -L {} "$pack/lib/"
cp -r codecs "$pack/"
mkdir -p "$pack/tests/golden"
cp tests/golden/*.bin tests/golden/values.sha256 "$pack/tests/golden/"
cp tools/gpu_check.sh "$pack/tools/"
nvrtc=$(find .setup/nvrtc-venv/lib -name 'libnvrtc.so.12' -print -quit 2>/dev/null || true)
make_archive() { tar -C "$work" -cJf "$file" gpu_pack; }
if [ -n "$nvrtc" ]; then
  mkdir "$pack/nvrtc"
  # Without libnvrtc.alt.so in the same folder: the package would be too large.
  find "$(dirname "$nvrtc")" -name 'libnvrtc*.so*' ! -name '*.alt.so*' -exec cp {} "$pack/nvrtc/" \;
  make_archive
  if [ "$(stat -c %s "$file")" -ge "$most" ]; then
    printf 'gpu_pack: with NVRTC it is %s bytes: left out, the machine needs one (TITHE_NVRTC)\n' "$(stat -c %s "$file")"
    rm -r "$pack/nvrtc"
    nvrtc=''
  fi
fi
[ -n "$nvrtc" ] || make_archive
[ "$(stat -c %s "$file")" -lt "$most" ] || { printf 'gpu_pack: %s is larger than 64 MiB\n' "$file" && exit 1; }
printf 'gpu_pack: %s, %s bytes\n' "$file" "$(stat -c %s "$file")"
