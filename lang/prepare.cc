// SPDX-License-Identifier: Apache-2.0
#include "lang/prepare.h"

#include <fmt/format.h>

#include <mutex>

#include "lang/cpp/compiled.h"
#include "lang/cpp/object_cache.h"
#include "lang/lists/pairs.h"

namespace tithe::lang {

void prepare(const LoadedProgram& program, const Settings& settings) {
  if (!this_machine().simd) return;
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  for (std::size_t phase = 0; phase < program.phases.size(); ++phase)
    prepare_phase(program.of(settings, phase), settings, level_in_use());
}

namespace {

const Object* built_in_of(const Combination& of) {
  return of.running->built_in[static_cast<std::size_t>(level_in_use())];
}

std::string how_of(const Combination& of) {
  if (by_kernels(of)) return "by the library's kernels for lists of values";
  return built_in_of(of) != nullptr ? compiled_with_tithe(level_in_use()) : of.running->how;
}

}  // namespace

bool is_built_in(const LoadedProgram& program, const Settings& settings) {
  for (std::size_t phase = 0; phase < program.phases.size(); ++phase) {
    const Combination& of = program.of(settings, phase);
    if (!by_kernels(of) && built_in_of(of) == nullptr) return false;
  }
  return true;
}

std::string how_it_runs(const LoadedProgram& program, const Settings& settings) {
  if (!this_machine().simd) return "interpreted, because TITHE_FORCE_REFERENCE is set";
  const Combination& last = program.of(settings);
  const Combination& of = last.program.sends_values ? *last.before : last;
  if (of.program.sends_pairs)
    return plan_pairs(of.program).kind == PairsKind::kOther
               ? "interpreted: the library has no kernel for its selection of values"
               : "by the library's kernels for lists of values";
  prepare(program, settings);
  bool same = true;
  std::string each;
  const std::string last_runs = how_of(of);
  for (std::size_t phase = 0; phase < program.phases.size(); ++phase) {
    const std::string how = how_of(program.of(settings, phase));
    same = same && how == last_runs;
    each += fmt::format("{}{}: {}", phase == 0 ? "" : "; ", program.phases[phase].name, how);
  }
  return same ? last_runs : each;
}

}  // namespace tithe::lang
