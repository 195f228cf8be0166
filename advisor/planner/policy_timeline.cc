// SPDX-License-Identifier: Apache-2.0
// timeline: minimizes the communication that computation does not hide. All tensors are judged together, by a list
// schedule of the compute lanes and the links (list_schedule.h).
//
//   1  starts: for each option and each size limit, all tensors above the limit use the option, the others their base
//   2  descent: from the largest size class to the smallest, each option and part size that makes the step shorter is
//      taken; twice
//   3  back: a payload that is followed by an idle period of the links gains nothing from compression (Espresso,
//      EuroSys 2023), so each bucket, first to last, returns to its base codec if the step stays as short
// The number of estimates follows from the number of tensors alone: no clock decides.
#include <algorithm>
#include <set>

#include "advisor/planner/policies.h"

namespace tithe::planner {
namespace {

constexpr double kBetter = 0.9995;  // of a step: a smaller improvement counts as none
constexpr std::size_t kParts[] = {kDefaultPartValues, std::size_t{1} << 20, std::size_t{1} << 18};

class Search {
 public:
  explicit Search(PlanSearch& search) : search_(search), tensors_(search.query().job.tensors) {
    constexpr std::size_t kWorth = 800'000;  // tensors examined in all
    max_judged_ = std::clamp<std::size_t>(kWorth / tensors_.size(), 60, 4000);
  }

  Assignment run() {
    starts();
    descend();
    return less_compressed(search_, std::move(best_));
  }

 private:
  bool spent() const { return search_.judged - before_ >= max_judged_; }
  bool take(const Assignment& other, double factor = kBetter) {
    const Seconds limit = best_.empty() ? sim::kNever : factor * step_;
    const Seconds step = search_.judge(other, limit);
    if (step >= limit) return false;
    best_ = other;
    step_ = step;
    return true;
  }

  // At most `most` of the sizes that occur, evenly chosen.
  std::vector<std::size_t> sizes(std::size_t most) const {
    std::set<std::size_t> all;
    for (const JobTensor& t : tensors_) all.insert(t.n);
    const std::vector<std::size_t> sorted(all.begin(), all.end());
    std::vector<std::size_t> out;
    const std::size_t count = std::min(most, sorted.size());
    for (std::size_t k = 0; k < count; ++k) out.push_back(sorted[k * sorted.size() / count]);
    return out;
  }

  void starts() {
    const std::size_t options = search_.options().size();
    for (std::size_t o = 0; o < options; ++o)
      for (const std::size_t small : {kDefaultMinValues, std::size_t{1} << 16})
        if (search_.options()[o].searched)
          take(search_.uniform(static_cast<int>(o), kDefaultPartValues, small));
    for (std::size_t o = 0; o < options; ++o)
      if (search_.options()[o].searched) take(search_.with_base_codecs(static_cast<int>(o)));
    const std::size_t each = std::max<std::size_t>(1, max_judged_ / 2 / options);
    for (std::size_t o = 0; o < options; ++o) {
      if (!search_.options()[o].lossy || !search_.options()[o].searched) continue;
      for (const std::size_t least : sizes(std::min<std::size_t>(each, 12))) {
        if (spent()) return;
        Assignment some = search_.uniform(static_cast<int>(o), kDefaultPartValues);
        for (std::size_t t = 0; t < some.size(); ++t)
          if (tensors_[t].n < least && !some[t].grouped)
            some[t].option = search_.base_option(t, static_cast<int>(o));
        take(some);
      }
    }
  }

  void descend() {
    std::vector<std::size_t> classes = sizes(32);
    std::reverse(classes.begin(), classes.end());
    for (int turn = 0; turn < 2; ++turn) {
      std::size_t above = static_cast<std::size_t>(-1);
      for (const std::size_t least : classes) {
        for (std::size_t o = 0; o < search_.options().size(); ++o)
          for (const std::size_t part : kParts) {
            if (spent()) return;
            if (!search_.options()[o].searched) continue;
            Assignment other = best_;
            bool differs = false;
            for (std::size_t t = 0; t < other.size(); ++t) {
              if (tensors_[t].n < least || tensors_[t].n >= above || other[t].grouped) continue;
              if (!search_.allowed(t, static_cast<int>(o))) continue;
              const Decision now{static_cast<int>(o), part, false};
              differs = differs || other[t] != now;
              other[t] = now;
            }
            if (differs) take(other);
          }
        above = least;
      }
    }
  }

  PlanSearch& search_;
  const std::vector<JobTensor>& tensors_;
  std::size_t max_judged_;
  const std::size_t before_ = search_.judged;
  Assignment best_;
  Seconds step_ = 0;
};

Result<Assignment> decide(PlanSearch& search, std::string_view /*argument*/) { return Search(search).run(); }

}  // namespace

Assignment less_compressed(PlanSearch& search, Assignment assignment) {
  const Seconds most = kAsShort * search.judge(assignment);
  std::size_t first = 0;
  for (const std::size_t end : search.query().job.bucket_ends) {
    Assignment other = assignment;
    for (std::size_t t = first; t < end; ++t)
      if (search.option(other[t].option).lossy) other[t].option = search.base_option(t, other[t].option);
    first = end;
    if (other != assignment && search.judge(other, most) <= most) assignment = std::move(other);
  }
  return assignment;
}

const Policy timeline_policy = {.name = "timeline", .argument = {}, .decide = decide};

}  // namespace tithe::planner
