// SPDX-License-Identifier: Apache-2.0
#pragma once
// A part's costs to a rank, as stages: computing, then what goes up its link, then what comes down, and again. Taken
// from the engine's own program of that part (engine/program/program.h), so a strategy needs no formula here.
//
//   stage     hop h of a message is one more than the most hops of what it was made from; stage h holds the computing
//             that needs h hops, the frames that leave after it, and those that come in at hop h
//   typical   of the rank whose work is most, where ranks differ
//   inside    what ranks of one host send each other takes its time on the link that all of them share
//   shared    a host's link is shared by those of its ranks that send to other hosts
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "advice/planner/plan_query.h"

namespace tithe::planner {

struct Stage {
  Seconds compute = 0;
  Seconds up = 0, down = 0;  // on the link, before and after
  Seconds delay = 0;         // until what went up begins to come down
  Seconds inside = 0;        // on the link inside the host
};
struct Work {
  std::vector<Stage> stages;
  Seconds link = 0;  // for which the busiest link has to be busy, whoever sends when
  Stage all = {};    // of the stages together
};

// One way to exchange a part: a codec, and who sends what to whom.
struct Option {
  Spec spec;
  const Strategy* strategy = nullptr;
  bool lossy = false;    // the user had to allow it
  bool searched = true;  // else it is there to compare with, for all tensors at once
  bool alike = false;    // one rank stands for all: quick to simulate
  friend bool operator==(const Option&, const Option&) = default;
};
std::string to_string(const Option& option);

class Works {
 public:
  explicit Works(const Question& question);
  ~Works();
  // The work of a part of n values; `rounded_inside`: ranks of one host send each other bf16, where they are treated
  // apart. Kept: the same part is not worked out twice. kInvalid: costs that are not known.
  Result<const Work*> of(const Option& option, std::size_t n, std::size_t row, bool rounded_inside = false);

 private:
  Result<Work> work_out(const Option& option, std::size_t n, std::size_t row, bool rounded_inside);
  struct Writer;  // of the programs of a strategy
  const Question& question_;
  std::map<const Strategy*, std::unique_ptr<Writer>> writers_;
  std::map<std::tuple<std::string, const Strategy*, std::size_t, bool>, std::unique_ptr<Work>> known_;
};

}  // namespace tithe::planner
