// SPDX-License-Identifier: Apache-2.0
#include "advice/planner/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "advice/sim/classes.h"
#include "engine/program/laws.h"
#include "plan/strategy_options.h"
#include "tithe/seam/catalogue.h"

namespace tithe::planner {
namespace {

constexpr int kMostSeats = 64;  // ranks that a simulation has to look at: of more, a search takes minutes
constexpr double kMostMessages = 1e5;  // of all ranks that a simulation of one setting has to look at

struct Way {
  const Strategy* strategy;
  bool searched, alike;
};

// By whom a tensor may be exchanged: those that treat hosts apart where hosts have several ranks; and to search, none
// by which so many ranks differ that nobody can simulate a search. `server` is always there.
std::vector<Way> ways_of(const Question& question) {
  std::vector<Way> out;
  const sim::Cluster& cluster = question.cluster;
  const auto hosts = static_cast<int>(cluster.hosts().size());
  double parts = 0;
  for (const JobTensor& t : question.job.tensors)
    parts += std::ceil(static_cast<double>(t.n) / static_cast<double>(kUsualPartValues));
  for (const char* name :
       {"server", "ring", "gather", "hosts", "hosts_ring", "hosts_gather", "tree", "aggregator"}) {
    const Strategy& s = *find_strategy(name);
    if (s.between != nullptr && (hosts == cluster.world() || hosts == 1)) continue;
    const int seats = sim::Classes::of(cluster, {{&s}}).seats();
    const bool plain = s.name != "tree" && s.name != "aggregator";
    const bool searched = out.empty() || (plain && seats <= kMostSeats);
    const Place place{.world = cluster.world(), .hosts = &cluster.shared()};
    // At an aggregator one rank sends to all, and they to it alone.
    const double frames = s.name == "aggregator" ? 2 : s.cost(place).frames_sent;
    if (searched || seats * parts * frames <= kMostMessages) out.push_back({&s, searched, seats == 1});
  }
  return out;
}

std::string key_rule(std::string_view key) {
  const bool special = key.starts_with('=') || key.find_first_of("*?") != std::string_view::npos;
  return special ? fmt::format("={}", key) : std::string(key);
}

}  // namespace

Result<Board> Board::make(const Question& question) {
  TITHE_TRY(check(question));
  Board board(question);
  std::vector<Spec> all = codecs_without_a_word();
  if (!question.costs.of(all.back()).ok()) all.pop_back();  // an older profile does not know zip
  for (const Allowance& a : question.allowed)
    if (std::find(all.begin(), all.end(), a.codec) == all.end()) all.push_back(a.codec);
  const std::vector<Way> ways = ways_of(question);
  const Place place{.world = question.cluster.world(), .hosts = &question.cluster.shared()};
  for (const Spec& spec : all) {
    const std::size_t before = board.options_.size();
    const auto serves = [&](const Strategy& strategy) {
      return engine::choose_laws(spec, strategy).ok() &&
             (always_allowed(spec) || plan::is_accurate(spec, strategy, place));
    };
    for (const Way& way : ways)
      if (serves(*way.strategy))
        board.options_.push_back({spec, way.strategy, !always_allowed(spec), way.searched, way.alike});
    if (board.options_.size() == before)
      return Status(Code::kInvalid,
                    fmt::format("allowed '{}': it shares a law with no strategy that is planned",
                                tithe::to_string(spec)));
  }
  for (const JobTensor& t : question.job.tensors) {
    const std::vector<Spec> list = codecs_for(question, t.key);
    std::vector<char> may;
    for (const Option& o : board.options_)
      may.push_back(std::find(list.begin(), list.end(), o.spec) != list.end());
    board.allowed_.push_back(std::move(may));
  }
  // An option that cannot be judged is refused now, not in the midst of a search.
  for (const Option& o : board.options_)
    if (const auto known = board.works_->of(o, 1, 1); !known.ok()) return known.status();
  return board;
}

int Board::find(const Spec& spec, std::string_view strategy) const {
  int first = -1;
  for (std::size_t o = 0; o < options_.size(); ++o) {
    if (!(options_[o].spec == spec)) continue;
    if (options_[o].strategy->name == strategy) return static_cast<int>(o);
    if (first < 0) first = static_cast<int>(o);
  }
  return first;
}

Spec Board::base(std::size_t tensor) const {
  Spec best = *parse_spec("bf16");
  const int o = find(best, "server");
  return o >= 0 && allowed(tensor, o) ? best : *parse_spec("fp32");
}

const Spec* Board::lossy(std::size_t tensor) const {
  for (std::size_t o = 0; o < options_.size(); ++o)
    if (options_[o].lossy && allowed_[tensor][o]) return &options_[o].spec;
  return nullptr;
}

int Board::base_option(std::size_t tensor, int like) const {
  return find(base(tensor), option(like).strategy->name);
}

Decision Board::grouped(std::size_t tensor) const {
  return {find(base(tensor), "server"), kUsualPartValues, true};
}

Assignment Board::uniform(int option, std::size_t part_values, std::size_t small) const {
  Assignment out;
  for (std::size_t t = 0; t < question_->job.tensors.size(); ++t) {
    if (question_->job.tensors[t].n < small)
      out.push_back(grouped(t));
    else
      out.push_back({allowed(t, option) ? option : base_option(t, option), part_values, false});
  }
  return out;
}

Assignment Board::best_uniform(const Spec& spec) {
  Assignment best;
  Seconds least = sim::kNever;
  for (std::size_t o = 0; o < options_.size(); ++o) {
    if (!options_[o].searched || !(options_[o].spec == spec)) continue;
    Assignment some = uniform(static_cast<int>(o), kUsualPartValues);
    const Seconds step = judge(some);
    if (!best.empty() && step >= least) continue;
    least = step;
    best = std::move(some);
  }
  return best;
}

const Choices& Board::session(int option) {
  const auto known = sessions_.find(option);
  if (known != sessions_.end()) return known->second;
  const Option& o = options_[static_cast<std::size_t>(option)];
  const sim::Cluster& cluster = question_->cluster;
  const Result<Link> link = parse_link(cluster.link_text(question_->costs));
  TITHE_ASSERT(link.ok());
  return sessions_
      .emplace(option, Choices::of({.spec = o.spec,
                                    .strategy = o.strategy,
                                    .world = cluster.world(),
                                    .hosts = cluster.shared(),
                                    .link = *link}))
      .first->second;
}

std::size_t Board::pieces(const Decision& d, std::size_t n) {
  if (d.part_values > 0) return (n + d.part_values - 1) / d.part_values;
  const Choices& choices = session(d.option);
  return choices.parts(choices.all().back(), n);
}

Assignment Board::setting(int option, bool rounded_inside) {
  const Decision small{find(*parse_spec("fp32"), "server"), kUsualPartValues, true};
  const std::size_t least =
      rounded_inside ? kUsualMinValues : session(option).min_values();  // a rule says it
  Assignment out;
  for (const JobTensor& t : question_->job.tensors)
    out.push_back(t.n < least ? small : Decision{option, 0, false, rounded_inside, false});
  return out;
}

Assignment Board::told(int option) { return uniform(option, 0, session(option).min_values()); }

bool Board::like_settings(double share) const {
  double all = 0, small = 0;
  for (std::size_t t = 0; t < question_->job.tensors.size(); ++t) {
    for (std::size_t o = 0; o < options_.size(); ++o)
      if (!allowed_[t][o]) return false;
    const auto n = static_cast<double>(question_->job.tensors[t].n);
    all += n;
    small += n < static_cast<double>(kUsualMinValues) ? n : 0;
  }
  return small <= share * all;
}

Seconds Board::least_step(int option, bool rounded_inside) {
  constexpr std::size_t kPart = std::size_t{1} << 20;
  constexpr double kRounding = 0.99;  // of what a small part takes in proportion to a large one
  Seconds ready = question_->job.compute;
  double values = 0;
  for (const JobTensor& t : question_->job.tensors) {
    ready = std::min(ready, t.ready);
    if (t.n >= kUsualMinValues) values += static_cast<double>(t.n);
  }
  const Work* part = work(option, kPart, kPart, rounded_inside);
  const Seconds link = part == nullptr ? 0 : part->link;
  return std::max(question_->job.compute, ready + kRounding * link * values / static_cast<double>(kPart));
}

const Work* Board::work(int o, std::size_t n, std::size_t row, bool rounded_inside) {
  const auto [at, fresh] = asked_.try_emplace({o, n, rounded_inside});
  if (fresh) {
    const Result<const Work*> found = works_->of(option(o), n, row, rounded_inside);
    if (found.ok()) at->second = *found;  // all its costs were known for one value: make() has seen to that
  }
  return at->second;
}

// The parts of a bucket, as tithe/seam/plan.h cuts them.
void Board::add_lots(const Assignment& assignment, std::size_t first, std::size_t end) {
  const Seconds ready = question_->job.tensors[end - 1].ready;
  std::map<int, std::size_t> groups;
  for (std::size_t t = first; t < end; ++t) {
    const JobTensor& tensor = question_->job.tensors[t];
    const Decision& d = assignment[t];
    if (d.grouped) {
      groups[d.option] += tensor.n;
      continue;
    }
    if (tensor.n == 0) continue;
    const std::size_t count = pieces(d, tensor.n), each = (tensor.n + count - 1) / count;
    lots_.push_back({ready, 0, static_cast<int>(count), work(d.option, each, tensor.row, d.rounded_inside)});
  }
  for (const auto& [o, n] : groups)
    if (n > 0) lots_.push_back({ready, 0, 1, work(o, n, n)});
}

// A resource does what its lots ask of it, and none of that before they are ready. Lots are in the order of buckets,
// which are ready one after the other.
Seconds Board::least() const {
  const double lanes = question_->lanes();
  Stage behind;
  Seconds most = 0;
  for (std::size_t l = lots_.size(); l-- > 0;) {
    const Stage& all = lots_[l].work->all;
    behind.compute += lots_[l].count * all.compute / lanes;
    behind.up += lots_[l].count * all.up;
    behind.down += lots_[l].count * all.down;
    behind.inside += lots_[l].count * all.inside;
    most = std::max(most, lots_[l].ready + std::max({behind.compute, behind.up, behind.down, behind.inside}));
  }
  return most;
}

Seconds Board::judge(const Assignment& assignment, Seconds limit) {
  ++judged;
  lots_.clear();
  std::size_t first = 0;
  for (const std::size_t end : question_->job.bucket_ends) {
    add_lots(assignment, first, end);
    first = end;
  }
  constexpr double kRounding = 1 + 1e-9;  // sums are taken in another order
  if (const Seconds least = this->least(); least > limit * kRounding) return least;
  times_ = schedule_.run(lots_, question_->lanes());
  return std::max(times_.end, question_->job.compute);
}

std::vector<Rule> Board::rules(const Assignment& assignment, const std::vector<std::string>& why) {
  const std::vector<JobTensor>& tensors = question_->job.tensors;
  std::map<std::size_t, std::map<Decision, std::size_t>> by_size;  // how many tensors have it
  for (std::size_t t = 0; t < tensors.size(); ++t) ++by_size[tensors[t].n][assignment[t]];
  const auto rule_of = [&](const Decision& d, std::size_t part_values, const std::string& reason) {
    Rule rule;
    rule.codec = option(d.option).spec;
    rule.strategy = d.grouped ? "auto" : std::string(option(d.option).strategy->name);
    rule.part_values = part_values;
    if (d.rounded_inside && option(d.option).strategy->between != nullptr) rule.inside = *parse_spec("bf16");
    rule.priority = d.early ? 1 : 0;
    if (d.grouped) rule.group = fmt::format("small {}", tithe::to_string(*rule.codec));
    rule.why = reason;
    return rule;
  };
  // Parts of at most `from` to `to` values are as many as are decided.
  struct Sizes {
    std::size_t from = 1, to = kMostValues;
  };
  const auto part_sizes = [&](const Decision& d, std::size_t n) -> Sizes {
    if (d.part_values > 0 || d.grouped || n == 0) return {d.part_values, d.part_values};
    const std::size_t count = pieces(d, n);
    return {(n + count - 1) / count, count == 1 ? kMostValues : (n - 1) / (count - 1)};
  };
  std::map<std::size_t, Decision> usual;  // by size: what most tensors of it have
  for (const auto& [n, decisions] : by_size)
    usual[n] = std::max_element(decisions.begin(), decisions.end(), [](const auto& a, const auto& b) {
                 return a.second < b.second;
               })->first;
  std::vector<Rule> rules;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    if (assignment[t] != usual[tensors[t].n]) {
      const std::size_t part = part_sizes(assignment[t], tensors[t].n).from;
      rules.push_back(rule_of(assignment[t], part, why.empty() ? std::string() : why[t]));
      rules.back().match = key_rule(tensors[t].key);
    }
  // Sizes side by side with the same decision, and parts that suit all of them, are one rule; it reaches to the next.
  for (auto at = usual.begin(); at != usual.end();) {
    auto end = at;
    Sizes all;
    for (; end != usual.end() && end->second == at->second; ++end) {
      const Sizes own = part_sizes(end->second, end->first);
      const Sizes both{std::max(all.from, own.from), std::min(all.to, own.to)};
      if (both.from > both.to) break;
      all = both;
    }
    rules.push_back(rule_of(
        at->second, all.from,
        fmt::format("planned for {}{} values", at->first,
                    std::next(at) == end ? std::string() : fmt::format(" to {}", std::prev(end)->first))));
    if (at != usual.begin()) rules.back().least = at->first;
    if (end != usual.end()) rules.back().most = end->first - 1;
    at = end;
  }
  return rules;
}

}  // namespace tithe::planner
