#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the project needs and nothing else: Debian packages (with sudo when not root) and a virtual
# environment in .venv. Quick if everything is installed; if it cannot continue, it names the missing part.
#
#   tools/setup.sh core             compiler, libraries, virtual environment with torch, for `pip install .`
#   tools/setup.sh demo             also the packages of `make demo`
#   tools/setup.sh build            also those of the tests, the benchmarks and a wheel
#   tools/setup.sh build lint docs  also those of `make lint`
#   tools/setup.sh build fuzz       also those of `make fuzz`
#   tools/setup.sh build mpi        also OpenMPI, for `make bench-sync`
#   tools/setup.sh build rtl        also those of `make rtl`; `rtl-tools`: synthesis, and a virtual environment in
#                                   .setup/rtl-venv with a linter and place and route
#   tools/setup.sh build arm        also those of `make test-arm`: a cross compiler, an emulator, and in
#                                   .setup/arm-sysroot the libraries as Debian has them for arm64
#   tools/setup.sh jax              for tests of tithe.jax: a virtual environment in .setup/jax-venv
#   tools/setup.sh keras            for tests of tithe.keras, with two backends, in .setup/keras-venv
#   tools/setup.sh mxnet            for tests of MXNet: a virtual environment in .setup/mxnet-venv
#   tools/setup.sh deepspeed        DeepSpeed for its tests, in .setup/deepspeed-venv, with the packages of .venv
#   tools/setup.sh ray              Ray Train for its example's test, not used by a make target: .setup/ray-venv
#   tools/setup.sh tensorflow       TensorFlow under Keras, not used by a make target: .setup/tensorflow-venv
#   tools/setup.sh torchft          for tests of tithe.torchft, beside torch, in .setup/torchft-venv
#   tools/setup.sh torchtitan       its mesh and sharding for a test, in .setup/torchtitan-venv, with the packages of .venv
#   tools/setup.sh nvrtc            NVIDIA's compiler of kernels, which a test uses: a virtual environment in
#                                   .setup/nvrtc-venv
#   tools/setup.sh docs             for `make docs`: a virtual environment in .setup/docs-venv
set -euo pipefail
cd "$(dirname "$0")/.."

packages_core=(build-essential cmake ninja-build pkg-config python3 python3-venv python3-dev libucx-dev libhwy-dev
  libxxhash-dev libssl-dev libasio-dev libfmt-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev
  ccache)
packages_build=(libgtest-dev iproute2 util-linux
  libzfp-dev libzstd-dev libopenblas-dev libkissfft-dev libhtscodecs-dev) # these five: bench_codecs compares codecs with them
packages_demo=(dataset-fashion-mnist iproute2 util-linux)
packages_lint=(clang-format clang-tidy)
packages_fuzz=(clang libclang-rt-14-dev) # libFuzzer is clang's
packages_mpi=(openmpi-bin libopenmpi3)
packages_rtl=(verilator)
packages_rtl_tools=(yosys)
packages_arm=(g++-aarch64-linux-gnu qemu-user)
# These groups install no Debian packages, only a virtual environment.
for group in docs jax keras mxnet deepspeed ray tensorflow torchft torchtitan nvrtc; do declare -a "packages_$group=()"; done

say() { printf 'setup: %s\n' "$*"; }
die() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

missing=()
requirements=(tools/requirements.txt)
for group in core "$@"; do
  if ! declare -p "packages_${group//-/_}" >/dev/null 2>&1; then
    known=$(compgen -A arrayvar packages_ | sed 's/packages_//; s/_/-/g')
    die "no such group '$group' ($(echo $known | sed 's/ /, /g'))"
  fi
  declare -n list="packages_${group//-/_}"
  [ "$group" != build ] || requirements+=(tools/requirements_build.txt)
  for p in "${list[@]}"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed || missing+=("$p")
  done
done

if [ "${#missing[@]}" -gt 0 ]; then
  command -v apt-get >/dev/null || die "needs these packages, and apt-get is not here to install them: ${missing[*]}"
  sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "not root and no sudo; ask an administrator to run: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  say "installing ${missing[*]}"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  install() {
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1
  }
  # An absent or old package list names versions that no longer exist: refresh it and try once more.
  install || { "${sudo[@]}" apt-get update >>"$log" 2>&1 && install; } || {
    tail -n 15 "$log" >&2
    die "apt-get could not install: ${missing[*]}"
  }
fi

# Libraries of an arm64 program, unpacked beside the tree, with separate lists and a separate cache of apt, so that
# the machine's own packages do not change.
arm_sysroot() {
  local -a debs=(libhwy1 libhwy-dev libxxhash0 libxxhash-dev libssl3 libssl-dev libfmt9 libfmt-dev libgtest-dev libzstd1
    zlib1g libasio-dev libtomlplusplus-dev nlohmann-json3-dev libcli11-dev)
  local to stamp apt
  stamp=.setup/arm-$(echo "${debs[*]}" | sha256sum | cut -c1-16)
  [ ! -e "$stamp" ] || return 0
  say "libraries for arm64 in .setup/arm-sysroot"
  to=$PWD/.setup/arm-sysroot
  apt=$(mktemp -d)
  mkdir -p "$apt"/{state/lists/partial,cache/archives/partial,debs}
  local -a own=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$apt/state" -o Dir::Cache="$apt/cache"
    -o Dir::State::status=/dev/null -o APT::Sandbox::User=)
  apt-get "${own[@]}" update >"$apt/log" 2>&1 && (cd "$apt/debs" && apt-get "${own[@]}" download "${debs[@]}" >>"$apt/log" 2>&1) || {
    tail -n 15 "$apt/log" >&2
    die "apt-get could not download for arm64: ${debs[*]}"
  }
  rm -rf "$to" .setup/arm-????????????????
  mkdir -p "$to"
  for deb in "$apt"/debs/*.deb; do dpkg-deb -x "$deb" "$to"; done
  rm -rf "$apt"
  touch "$stamp"
}
case " $* " in *" arm "*) arm_sysroot ;; esac

# The virtual environment: created again if the interpreter changed, updated if a list of packages changed. PYTHON
# chooses the interpreter.
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
  die "needs Python 3.10 or newer; '$python' is $("$python" --version 2>&1 || echo 'not there') (set PYTHON=/path/to/python3)"
mkdir -p .setup
for file in "${requirements[@]}"; do
  name=$(basename "$file" .txt)
  stamp=.setup/$name-$(cat "$file" <("$python" --version) | sha256sum | cut -c1-16)
  if [ ! -e "$stamp" ] || [ ! -x .venv/bin/python ]; then
    say "virtual environment in .venv ($("$python" --version)), packages of $file"
    "$python" -m venv .venv || die "'$python -m venv' failed; on Debian the package is python3-venv"
    .venv/bin/python -m pip install --disable-pip-version-check -q -r "$file" || die "pip could not install $file (see above)"
    rm -f ".setup/$name"-*
    touch "$stamp"
  fi
done

# A separate virtual environment, in .setup/NAME-venv. With `inner`, it also has the packages of .venv.
beside() { # name, list of packages, inner
  local stamp
  stamp=.setup/$1-$(cat "$2" <("$python" --version) | sha256sum | cut -c1-16)
  if [ ! -e "$stamp" ] || [ ! -x ".setup/$1-venv/bin/python" ]; then
    say "virtual environment in .setup/$1-venv, packages of $2"
    "$python" -m venv ".setup/$1-venv" || die "'$python -m venv' failed; on Debian the package is python3-venv"
    if [ "${3:-}" = inner ]; then
      ".setup/$1-venv/bin/python" -m pip uninstall --disable-pip-version-check -q -y setuptools # .venv has a newer one
      local own
      own=$(".setup/$1-venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
      .venv/bin/python -c 'import site; print(site.getsitepackages()[0])' >"$own/inner.pth"
    fi
    ".setup/$1-venv/bin/python" -m pip install --disable-pip-version-check -q -r "$2" || {
      rm -rf ".setup/$1-venv" # otherwise a later run would accept the incomplete one
      die "pip could not install $2 (see above)"
    }
    rm -f ".setup/$1"-????????????????
    touch "$stamp"
  fi
}
case " $* " in *" rtl-tools "*) beside rtl card/rtl/requirements.txt ;; esac
case " $* " in *" jax "*) beside jax tools/requirements_jax.txt ;; esac
case " $* " in *" keras "*) beside keras tools/requirements_keras.txt ;; esac
case " $* " in *" mxnet "*) beside mxnet tools/requirements_mxnet.txt ;; esac
# It has no wheel, and its build asks torch for the kernels to compile: none here. It uses the installed setuptools.
case " $* " in *" deepspeed "*) DS_BUILD_OPS=0 DS_ACCELERATOR=cpu PIP_NO_BUILD_ISOLATION=0 \
  beside deepspeed tools/requirements_deepspeed.txt inner ;; esac
case " $* " in *" ray "*) beside ray tools/requirements_ray.txt inner ;; esac
case " $* " in *" tensorflow "*) beside tensorflow tools/requirements_tensorflow.txt ;; esac
case " $* " in *" torchft "*) PIP_NO_DEPS=1 beside torchft tools/requirements_torchft.txt ;; esac
case " $* " in *" torchtitan "*) PIP_NO_DEPS=1 beside torchtitan tools/requirements_torchtitan.txt inner ;; esac
case " $* " in *" nvrtc "*) beside nvrtc tools/requirements_nvrtc.txt ;; esac
case " $* " in *" docs "*) beside docs tools/requirements_docs.txt ;; esac
