// SPDX-License-Identifier: Apache-2.0
#pragma once
// PlanSearch has the options for each tensor of a query, and estimates the step time of an assignment.
//
//   options   every codec that is allowed, by every strategy that it shares a law with, lossless and 16-bit ones first.
//             The loss that the user allowed stays what it is: others by strategies alone that strategy "auto" takes
//             too, which round no more often than `server` or lose little by it (plan/strategy_options.h).
//             Options that no search tries (all tensors by `tree`) are among them, to compare with
//   small     tensors below `small` values travel as the best that is always allowed, in groups that share parts: a
//             frame of their own costs more than their bytes
//   rules     an assignment is written as few rules: by size where sizes decide, by key for the exceptions
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "advice/planner/list_schedule.h"
#include "advice/sim/step_timeline.h"

namespace tithe::planner {

struct Decision {
  int option = 0;               // index in PlanSearch::options(); of a small tensor too
  std::size_t part_values = 0;  // of its parts at most; 0: as a session that is told the link has them
  bool grouped = false;
  bool rounded_inside = false;  // ranks of one host send each other bf16, where hosts are treated apart
  bool early = false;           // its parts go before others that are ready
  friend auto operator<=>(const Decision&, const Decision&) = default;
};
using Assignment = std::vector<Decision>;  // by tensor

class PlanSearch {
 public:
  // kInvalid: as check() says; a codec that shares a law with no strategy.
  static Result<PlanSearch> make(const PlanQuery& query);
  PlanSearch(PlanSearch&&) = default;

  const PlanQuery& query() const { return *query_; }
  const std::vector<Option>& options() const { return options_; }
  const Option& option(int o) const { return options_[static_cast<std::size_t>(o)]; }
  bool allowed(std::size_t tensor, int option) const {
    const auto o = static_cast<std::size_t>(option);
    return allowed_[tensor][o] && !(without_loss_ && options_[o].lossy);
  }
  void without_loss(bool on) { without_loss_ = on; }  // from now on nothing lossy is allowed
  // The number of such an option, or of its codec by the first strategy that serves it; -1: there is none.
  int find(const Spec& spec, std::string_view strategy) const;
  // The spec of a tensor where nothing lossy is to be sent: bf16, or fp32 where an exception says so.
  Spec base(std::size_t tensor) const;
  // The first lossy codec that a tensor may have; nullptr: none.
  const Spec* lossy(std::size_t tensor) const;

  // Small tensors in groups, all others as `option` says, or as their base where they may not have it.
  Assignment uniform(int option, std::size_t part_values, std::size_t small = kUsualMinValues) const;
  // By the strategy that is best for the codec, as the estimate says.
  Assignment best_uniform(const Spec& spec);
  Decision grouped(std::size_t tensor) const;
  // A session with this codec and strategy and no rules, which is told the link: it sends small tensors as fp32,
  // whatever is allowed. With bf16 inside there is a rule, for tensors of kUsualMinValues and more.
  Assignment setting(int option, bool rounded_inside);
  // The same, but what is small travels as its base, and what may not have the option too.
  Assignment told(int option);
  // uniform() is setting() but for so small a share of the values: every tensor may have every option.
  bool like_settings(double share) const;
  // A lower bound of the step if all tensors have this option: the time of the busiest link.
  Seconds least_step(int option, bool rounded_inside);
  // The option of a tensor's base, by the strategy of `like` where it can be.
  int base_option(std::size_t tensor, int like) const;

  // The step's length by list_schedule.h. One that is longer than `limit` may be answered by less than it takes, but
  // more than the limit. Counted: `judged` says how many there were.
  Seconds judge(const Assignment& assignment, Seconds limit = sim::kNever);
  Times last_times() const { return times_; }  // of the last one judged
  std::size_t judged = 0;

  std::vector<Rule> rules(const Assignment& assignment, const std::vector<std::string>& why);
  sim::TimelineCache& timelines() { return *timelines_; }  // for the worlds of this query

 private:
  explicit PlanSearch(const PlanQuery& query)
      : query_(&query),
        costs_(std::make_unique<CostCache>(query)),
        timelines_(std::make_unique<sim::TimelineCache>()) {}
  const Choices& session(int option);  // that is told the link
  std::size_t pieces(const Decision& d, std::size_t n);
  void add_batches(const Assignment& assignment, std::size_t first, std::size_t end);
  const PartCost* work(int option, std::size_t n, std::size_t row, bool rounded_inside = false);
  Seconds least() const;  // of the batches: no step is shorter

  const PlanQuery* query_;
  std::unique_ptr<CostCache> costs_;
  std::unique_ptr<sim::TimelineCache> timelines_;
  std::map<std::tuple<int, std::size_t, bool>, const PartCost*> asked_;  // of costs_, by option
  std::vector<Option> options_;
  std::vector<std::vector<char>> allowed_;  // [tensor][option]
  std::map<int, Choices> sessions_;         // by option, as far as they were asked for
  bool without_loss_ = false;
  ListSchedule schedule_;
  std::vector<Batch> batches_;
  Times times_;
};

}  // namespace tithe::planner
