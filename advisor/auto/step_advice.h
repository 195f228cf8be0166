// SPDX-License-Identifier: Apache-2.0
#pragma once
// Advice for a running job: its step now, with bf16, with a plan and without a network, and what to change. It is
// computed like a plan (decide.h), but nothing is proposed to the session.
#include <string>
#include <vector>

#include "advisor/auto/decide.h"

namespace tithe::automatic {

// A codec that is tried even if it is not allowed: a quarter of the bytes.
inline constexpr const char* kHint = "fp8";

struct Advice {
  Seconds step = 0;                           // measured
  Seconds compute = 0;                        // the part of it before the last bucket is submitted
  Seconds bf16 = 0, planned = 0, hinted = 0;  // simulated; hinted: with kHint allowed too, 0 if it already is
  std::string bf16_by = {};  // the best setting of bf16, such as "bf16@hosts"; empty: communication is hidden
  Seconds no_network = 0;    // simulated: the current rules without network cost
  double bytes_per_second = 0;  // of a link; 0: communication is hidden
  std::vector<Rule> rules;      // of the plan; the current ones if `stays`
  bool stays = false;           // no allowed change is worth it
  bool compresses = false;      // `rules` use a lossy codec
};

// auto_query.costs must include those of kHint. kInvalid as in decide().
Result<Advice> advise(const AutoQuery& auto_query);

// One JSON object; its `lines` are the summary for people.
std::string to_json(const Advice& advice, const AutoQuery& auto_query);

}  // namespace tithe::automatic
