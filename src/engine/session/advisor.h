// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Advisor chooses the codecs of a session with codec "auto". The engine reports buckets and rounds to it and
// proposes its rules; advisor/auto implements it. It runs on rank 0; the other ranks receive proposals.
//
//   beside    it computes in tasks of `run_in_background`; its calls return immediately
//   steady    handed() and round_over() allocate nothing while there is nothing to decide
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plan/allowance.h"
#include "tithe/session.h"

namespace tithe::engine {

class Advisor {
 public:
  virtual ~Advisor() = default;

  // A bucket was passed to sync(). `layout`: the hash of its keys, sizes and types, in order.
  virtual void handed(std::uint64_t layout, std::span<const Tensor> bucket, std::int64_t at_ns) = 0;
  // A round was committed; `last`: the state of the last proposal. Returns rules to propose, as JSON; empty: none.
  virtual std::string round_over(std::int64_t at_ns, const Proposal& last) = 0;
  // Its rules were not proposed.
  virtual void not_proposed(const Status& why) = 0;

  // For a saved state: the decisions, in its own format.
  virtual std::string decided() const = 0;
  // The session continues from a state with these rules. decided: from that state; empty if it has none.
  virtual void restored(const std::string& decided, std::span<const Rule> rules) = 0;

  // Messages for users since the last call.
  virtual std::vector<std::string> messages() = 0;
};

struct AdvisorContext {
  ChoiceDefaults defaults;       // of the session: world, hosts, sizes, link
  std::vector<Rule> first = {};  // rules at the start
  int lanes = 1;
  std::function<void(std::function<void()>)> run_in_background;  // work that no step waits for
  std::function<std::int64_t()> now_ns;
  std::function<void(std::string_view op, std::int64_t begin_ns, std::int64_t end_ns)> mark;  // for the trace
};
std::unique_ptr<Advisor> make_advisor(AutoSpec spec, AdvisorContext context);

// If TITHE_ADVISE names a file: the observer writes advice for shorter steps there, and proposes nothing.
struct AdviceRequest {
  std::string path;
  AutoSpec allowed;
};
std::unique_ptr<Advisor> make_observer(AdviceRequest what, AdvisorContext context);

}  // namespace tithe::engine
