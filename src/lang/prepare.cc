// SPDX-License-Identifier: Apache-2.0
#include "lang/prepare.h"

#include <fmt/format.h>

#include <mutex>

#include "lang/cpp/compiled.h"
#include "lang/cpp/object_cache.h"
#include "lang/lists/pairs.h"
#include "tithe/seam/machine.h"

namespace tithe::lang {

void prepare(const LoadedProgram& program, const Settings& settings) {
  if (!this_machine().simd) return;
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  for (std::size_t phase = 0; phase < program.phases.size(); ++phase)
    prepare_phase(program.of(settings, phase), settings, level_in_use());
}

std::string how_it_runs(const LoadedProgram& program, const Settings& settings) {
  if (!this_machine().simd) return "interpreted, as TITHE_FORCE_REFERENCE says";
  const Combination& last = program.of(settings);
  const Combination& of = last.program.sends_values ? *last.before : last;
  if (of.program.sends_pairs)
    return plan_pairs(of.program).kind == PairsKind::kOther
               ? "interpreted: it chooses values as none of the library's kernels does"
               : "by the library's kernels for lists of values";
  prepare(program, settings);
  bool alike = true;
  std::string each;
  for (std::size_t phase = 0; phase < program.phases.size(); ++phase) {
    const Combination& one = program.of(settings, phase);
    const std::string how =
        by_kernels(one) ? "by the library's kernels for lists of values" : one.running->how;
    alike = alike && how == of.running->how;
    each += fmt::format("{}{}: {}", phase == 0 ? "" : "; ", program.phases[phase].name, how);
  }
  return alike ? of.running->how : each;
}

}  // namespace tithe::lang
