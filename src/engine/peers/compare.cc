// SPDX-License-Identifier: Apache-2.0
// Compares the cards and announcements of ranks (engine/peers/control.h), and describes the differences in words.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "engine/peers/control.h"
#include "engine/peers/session_config.h"

namespace tithe::engine {
namespace {

// "tensors 2 instead of 3, round 4 instead of 5"
class Differences {
 public:
  template <typename T>
  void compare(std::string_view what, const T& a, const T& b) {
    if (a != b) add(fmt::format("{} {} instead of {}", what, a, b));
  }
  void add(std::string_view more) {
    fmt::format_to(std::back_inserter(text_), "{}{}", text_.empty() ? "" : ", ", more);
  }
  bool empty() const { return text_.empty(); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

constexpr std::string_view kOtherStates = "it resumes from the state of another job, or from other states";

void compare_rounds(Differences& text, std::uint64_t is, std::uint64_t should) {
  text.compare("round", is, should);
  if (is + 1 == should)
    text.add("it undid its last round, or restored an older state, and other ranks did not");
  if (is == should + 1)
    text.add("other ranks undid their last round, or restored an older state, and it did not");
}

auto compared(const Card& c) {
  return std::tie(c.number, c.world, c.run, c.seed, c.tensors, c.values, c.layout, c.plan, c.round, c.ended,
                  c.place, c.job, c.average, c.codec, c.strategy);
}
bool same(const Card& a, const Card& b) { return compared(a) == compared(b); }

std::string difference(const Card& is, const Card& should) {
  Differences text;
  const auto compare = [&](std::string_view what, const auto& a, const auto& b) { text.compare(what, a, b); };
  compare("world", is.world, should.world);
  compare("run", is.run, should.run);
  compare("seed", is.seed, should.seed);
  if (is.codec != should.codec) text.add(card_difference(is.codec, should.codec));
  if (is.codec == should.codec && is.job != should.job) text.add(kOtherStates);
  compare("strategy", is.strategy, should.strategy);
  compare("average", static_cast<int>(is.average), static_cast<int>(should.average));
  compare("layout number", is.number, should.number);
  compare("tensors", is.tensors, should.tensors);
  compare("values", is.values, should.values);
  compare_rounds(text, is.round, should.round);
  if (text.empty() && is.layout != should.layout)
    text.add("the kind of round, or keys, sizes, types, bounds or order of tensors");
  if (text.empty() && (is.place != should.place || is.ended != should.ended))
    text.add("the order of buckets");
  if (text.empty()) text.add("the partition of the bucket into parts");
  return text.text();
}

std::string shown(const Announcement& a) {
  return a.is_end ? "no further bucket"
                  : fmt::format("a bucket of {} tensors with {} values", a.tensors, a.values);
}

std::string difference(const Announcement& is, const Announcement& should) {
  Differences text;
  if (is.job != should.job) text.add(kOtherStates);
  compare_rounds(text, is.round, should.round);
  if (!text.empty()) return text.text() + " (call undo() and restore() on all ranks, before the same round)";
  const std::string what =
      is.is_end != should.is_end || is.tensors != should.tensors || is.values != should.values
          ? fmt::format("it has {} instead of {}", shown(is), shown(should))
          : std::string("the kind of round, or keys, sizes, types, bounds or order of tensors");
  return fmt::format("bucket {} of the round: {} (pass the same buckets in the same order on all ranks)",
                     is.place + 1, what);
}

// Names the ranks that differ from the largest group of equal entries, with their differences. In a tie, the group of
// the lowest rank counts. by_majority: ok unless the group has more than half of the world.
template <typename T, typename Same>
Status compare_all(const std::vector<const T*>& all, Same equal, bool by_majority = false) {
  std::size_t best = 0;
  std::ptrdiff_t most = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r] == nullptr) continue;
    const auto like = std::count_if(
        all.begin(), all.end(), [&](const T* other) { return other != nullptr && equal(*other, *all[r]); });
    if (like > most) {
      most = like;
      best = r;
    }
  }
  if (by_majority && most <= std::ssize(all) / 2) return {};
  Rank first = Status::kNoPeer;
  std::string text;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r] == nullptr || equal(*all[r], *all[best])) continue;
    if (first == Status::kNoPeer) first = static_cast<Rank>(r);
    fmt::format_to(std::back_inserter(text), "{}rank {} differs: {}", text.empty() ? "" : "; ", r,
                   difference(*all[r], *all[best]));
  }
  return text.empty() ? Status{} : Status(Code::kMismatch, text, first);
}

}  // namespace

Status compare_cards(const std::vector<Card>& cards) {
  std::vector<const Card*> all;
  for (const Card& card : cards) all.push_back(&card);
  return compare_all(all, same);
}

Status compare_announcements(const std::vector<const Announcement*>& all) {
  const bool known = std::ranges::none_of(all, [](const Announcement* a) { return a == nullptr; });
  return compare_all(all, std::equal_to<>(), !known);
}

}  // namespace tithe::engine
