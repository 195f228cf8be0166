// SPDX-License-Identifier: Apache-2.0
#include "strategy/strategies.h"

namespace tithe {

std::span<const Strategy* const> all_strategies() {
  static constexpr const Strategy* kAll[] = {
#define TITHE_STRATEGY(name) &name##_strategy,
#include "tithe/strategies.def"
#undef TITHE_STRATEGY
  };
  return kAll;
}

const Strategy* find_strategy(std::string_view name) {
  for (const Strategy* s : all_strategies())
    if (s->name == name) return s;
  return nullptr;
}

}  // namespace tithe
