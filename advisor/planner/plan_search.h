// SPDX-License-Identifier: Apache-2.0
#pragma once
// PlanSearch holds the options for each tensor of a query, and estimates the step time of an assignment.
//
//   - options: every allowed codec with every strategy that supports it, lossless and 16-bit codecs first. A lossy
//     codec is combined only with strategies that "auto" uses as well, which round no more often than `server` or lose
//     little by it (plan/strategy_options.h), so the loss stays as the user allowed it. Some options serve as baselines
//     only, such as `tree` for all tensors.
//   - small tensors: tensors below `small` values use the best codec that needs no permission, in groups that share
//     parts, since a frame of their own costs more than their bytes.
//   - rules: an assignment is written as few rules, by size where the size decides, and by key for exceptions.
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "advisor/planner/list_schedule.h"
#include "advisor/sim/step_timeline.h"

namespace tithe::planner {

struct Decision {
  int option = 0;  // index in PlanSearch::options(), for a small tensor as well
  // The largest part; 0: the default of a session that has the link's rate.
  std::size_t part_values = 0;
  bool grouped = false;
  bool rounded_inside = false;  // with a two-level strategy, ranks of one host exchange bf16
  bool early = false;           // its parts precede other ready parts
  friend auto operator<=>(const Decision&, const Decision&) = default;
};
using Assignment = std::vector<Decision>;  // by tensor

class PlanSearch {
 public:
  // kInvalid: as check(), and for a codec that no strategy supports.
  static Result<PlanSearch> make(const PlanQuery& query);
  PlanSearch(PlanSearch&&) = default;

  const PlanQuery& query() const { return *query_; }
  const std::vector<Option>& options() const { return options_; }
  const Option& option(int o) const { return options_[static_cast<std::size_t>(o)]; }
  bool allowed(std::size_t tensor, int option) const {
    const auto o = static_cast<std::size_t>(option);
    return allowed_[tensor][o] && !(without_loss_ && options_[o].lossy);
  }
  void without_loss(bool on) { without_loss_ = on; }  // from now on no lossy option is allowed
  // The index of that option, or of the codec with the first strategy that supports it; -1: there is none.
  int find(const Spec& spec, std::string_view strategy) const;
  // The codec of a tensor without permission for loss: bf16, or fp32 if an exception demands it.
  Spec base(std::size_t tensor) const;
  // The first lossy codec that is allowed for a tensor; nullptr: none.
  const Spec* lossy(std::size_t tensor) const;

  // Small tensors in groups; all others use `option`, or their base codec if the option is not allowed.
  Assignment uniform(int option, std::size_t part_values, std::size_t small = kDefaultMinValues) const;
  // Likewise, with the strategy for this codec that has the best estimate.
  Assignment best_uniform(const Spec& spec);
  Decision grouped(std::size_t tensor) const;
  // The assignment of a session with this codec and strategy, with the link's rate and without rules. Such a session
  // sends small tensors as fp32. With bf16 inside hosts there is a rule, for tensors of at least kDefaultMinValues.
  Assignment setting(int option, bool rounded_inside);
  // Likewise, but small tensors, and tensors that may not use the option, use their base codec.
  Assignment with_base_codecs(int option);
  // True if uniform() differs from setting() only for at most `share` of the values: every tensor may use every option.
  bool like_settings(double share) const;
  // A lower bound of the step if all tensors use this option: the busy time of the busiest link.
  Seconds min_step(int option, bool rounded_inside);
  // The option with a tensor's base codec, and if possible the strategy of `like`.
  int base_option(std::size_t tensor, int like) const;

  // The estimated step time (list_schedule.h). If it exceeds `limit`, the result may be a lower bound that exceeds
  // `limit` too. Each call increments `judged`.
  Seconds judge(const Assignment& assignment, Seconds limit = sim::kNever);
  Times last_times() const { return times_; }  // of the last call of judge()
  std::size_t judged = 0;

  std::vector<Rule> rules(const Assignment& assignment);
  sim::TimelineCache& timelines() { return *timelines_; }  // for all worlds of this query

 private:
  explicit PlanSearch(const PlanQuery& query)
      : query_(&query),
        costs_(std::make_unique<CostCache>(query)),
        timelines_(std::make_unique<sim::TimelineCache>()) {}
  const Choices& session(int option);  // with the link's rate
  std::size_t pieces(const Decision& d, std::size_t n);
  void add_batches(const Assignment& assignment, std::size_t first, std::size_t end);
  const PartCost* work(int option, std::size_t n, std::size_t row, bool rounded_inside = false);
  Seconds least() const;  // lower bound of the step over batches_

  const PlanQuery* query_;
  std::unique_ptr<CostCache> costs_;
  std::unique_ptr<sim::TimelineCache> timelines_;
  std::map<std::tuple<int, std::size_t, bool>, const PartCost*> cost_by_option_;  // of costs_, by option
  std::vector<Option> options_;
  std::vector<std::vector<char>> allowed_;  // [tensor][option]
  std::map<int, Choices> sessions_;         // by option, created on demand
  bool without_loss_ = false;
  ListSchedule schedule_;
  std::vector<Batch> batches_;
  Times times_;
};

}  // namespace tithe::planner
