// SPDX-License-Identifier: Apache-2.0
// The environment variables of the library. Those of launchers are read in transport/rendezvous/launch.cc, those of the
// compiler and of the cache in lang/cpp/. docs/reference/environment.md has the table.
#include "tithe/seam/machine.h"

#include <fmt/format.h>
#define HWY_WANT_AVX3_DL  // some kernels have code for this target
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <iterator>

#include "base/environment.h"

namespace tithe {
namespace {

std::string lower(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}
std::string name_of(std::int64_t target) { return lower(hwy::TargetName(target)); }

// The targets of this processor for which kernels are compiled. In Highway a better target has a lower bit.
std::int64_t own_targets() {
  static const std::int64_t kOwn = hwy::SupportedTargets() & HWY_TARGETS;
  return kOwn;
}

std::int64_t best_of(std::int64_t targets) { return targets & -targets; }

std::atomic<std::int64_t>& in_use() {
  static std::atomic<std::int64_t> target{best_of(own_targets())};
  return target;
}

Status choose(std::string_view name) {
  std::string known;
  for (std::int64_t remaining = own_targets(); remaining != 0; remaining &= remaining - 1) {
    const std::int64_t target = best_of(remaining);
    if (name_of(target) == lower(std::string(name))) {
      hwy::DisableTargets(target - 1);
      in_use() = target;
      return {};
    }
    fmt::format_to(std::back_inserter(known), "{}{}", known.empty() ? "" : ", ", name_of(target));
  }
  return {Code::kInvalid, fmt::format("unknown target '{}': this machine has {}", name, known)};
}

struct Environment {
  Machine machine;
  Status trouble;
};

const Environment& environment() {
  static const Environment kEnvironment = [] {
    Environment e;
    const char* force = std::getenv("TITHE_FORCE_REFERENCE");
    e.machine.simd = force == nullptr || std::string_view(force) != "1";
    const char* target = std::getenv("TITHE_TARGET");
    if (target != nullptr && *target != '\0')
      if (const Status used = choose(target); !used.ok())
        e.trouble = Status(Code::kInvalid, fmt::format("TITHE_TARGET: {}", used.what()));
    return e;
  }();
  return kEnvironment;
}

}  // namespace

const Machine& this_machine() { return environment().machine; }

std::vector<std::string> targets() {
  std::vector<std::string> names;
  for (std::int64_t remaining = own_targets(); remaining != 0; remaining &= remaining - 1)
    names.push_back(name_of(best_of(remaining)));
  return names;
}

std::string target() {
  environment();
  return name_of(in_use());
}

Status use_target(std::string_view name) {
  environment();  // must come first, because this call overrides the environment
  return choose(name);
}

Status check_environment() { return environment().trouble; }

namespace {

std::string environment_value(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

}  // namespace

std::string trace_option() { return environment_value("TITHE_TRACE"); }
std::string advice_option() { return environment_value("TITHE_ADVISE"); }
std::string advice_allowances() { return environment_value("TITHE_ADVISE_ALLOW"); }
std::string cuda_library() { return environment_value("TITHE_CUDA"); }
std::string nvrtc_library() { return environment_value("TITHE_NVRTC"); }

}  // namespace tithe
