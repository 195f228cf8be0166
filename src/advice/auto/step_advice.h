// SPDX-License-Identifier: Apache-2.0
#pragma once
// The advice to a job that asks for it and goes on as it is: its step now, with bf16, with a plan, and without a
// network, and what to change. It is found as a plan is found (decide.h); nothing is proposed.
#include <string>
#include <vector>

#include "advice/auto/decide.h"

namespace tithe::automatic {

inline constexpr const char* kHint =
    "fp8";  // what more is looked at where it is not allowed: a quarter of the bytes

struct Advice {
  Seconds step = 0;     // measured
  Seconds compute = 0;  // of it, until the last bucket is handed over
  Seconds bf16 = 0, planned = 0,
          hinted = 0;           // simulated; hinted: with kHint allowed too, 0 where it is already
  std::string bf16_by = {};     // "bf16@hosts": the best setting of bf16; empty: communication is hidden
  Seconds no_network = 0;       // simulated: the rules in force on links that take no time
  double bytes_per_second = 0;  // of a link; 0: communication is hidden
  std::vector<Rule> rules;      // of the plan; those in force where they stay
  bool stays = false;           // nothing that is allowed is worth a change
  bool compresses = false;      // `rules` do
};

// asked.costs has kHint's too. kInvalid as decide() says it.
Result<Advice> advise(const AutoQuery& auto_query);

// One object, with `lines`: what it comes to, for people.
std::string to_json(const Advice& advice, const AutoQuery& auto_query);

}  // namespace tithe::automatic
