// SPDX-License-Identifier: Apache-2.0
#include "engine/run/send_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <tuple>

#include "base/text.h"

namespace tithe::engine {
namespace {

constexpr std::size_t kMaxWindow = std::size_t{1} << 40;
constexpr std::size_t kMaxPeers = 1'000'000;

// The order of a heap: the top is the frame that leaves first.
bool after(const SendWindow::Send& a, const SendWindow::Send& b) {
  return std::tie(b.urgency, a.order, a.op) > std::tie(a.urgency, b.order, b.op);
}

Status wrong(std::string_view text) {
  return {
      Code::kInvalid,
      fmt::format("pacer={}: must be off, window=BYTES or window=BYTES,rotation=PEERS; BYTES such as 65536, "
                  "PEERS is on (1), off (all, the default) or a number",
                  printable(text, 60))};
}

// A number in 1 .. most, or nothing.
std::optional<std::size_t> number(std::string_view text, std::size_t most) {
  std::size_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1 || n > most) return std::nullopt;
  return n;
}

}  // namespace

Result<Pacing> parse_pacing(std::string_view text) {
  if (text == "off") return Pacing{};
  std::optional<std::size_t> window, peers;
  for (const auto& [name, value] : settings_in(text)) {
    if (name == "window" && !window) {
      window = number(value, kMaxWindow);
      if (!window) return wrong(text);
    } else if (name == "rotation" && !peers) {
      peers = value == "on" ? 1 : value == "off" ? 0 : number(value, kMaxPeers);
      if (!peers) return wrong(text);
    } else {
      return wrong(text);
    }
  }
  if (!window) return wrong(text);
  return Pacing{.window = *window, .rotation = peers.value_or(0)};
}

SendWindow::SendWindow(const Pacing& pacing, Rank me, int world) : pacing_(pacing), me_(me), world_(world) {
  if (on()) lines_.resize(static_cast<std::size_t>(world > 0 ? world - 1 : 0));
}

void SendWindow::Parts::add(std::uint64_t order) {
  const auto it = std::ranges::find(parts_, order, &Count::order);
  if (it == parts_.end())
    parts_.push_back({order, 1});
  else
    ++it->frames;
}

void SendWindow::Parts::remove(std::uint64_t order) {
  const auto it = std::ranges::find(parts_, order, &Count::order);
  TITHE_ASSERT(it != parts_.end());
  if (--it->frames > 0) return;
  *it = parts_.back();
  parts_.pop_back();
}

std::uint64_t SendWindow::Parts::first() const {
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  for (const Count& c : parts_) first = std::min(first, c.order);
  return first;
}

std::size_t SendWindow::turn_of(Rank peer) const {
  return static_cast<std::size_t>((peer - me_ - 1 + world_) % world_);
}

void SendWindow::expect(std::span<const std::size_t> frames, std::size_t parts) {
  for (Rank r = 0; r < world_; ++r) {
    if (r == me_) continue;
    Line& line = at(turn_of(r));
    line.heap.reserve(line.expected += frames[static_cast<std::size_t>(r)]);
  }
  expected_parts_ += parts;
  waits_.reserve(expected_parts_);
  under_way_.reserve(expected_parts_);
}

void SendWindow::offer(const Send& send) {
  std::vector<Send>& heap = at(turn_of(send.peer)).heap;
  heap.push_back(send);
  std::push_heap(heap.begin(), heap.end(), after);
  waits_.add(send.order);
  ++waiting_;
}

bool SendWindow::fits(const Line& line) const {
  const std::size_t bytes = line.heap.front().bytes;
  if (bytes_ == 0 || bytes_ + bytes <= pacing_.window) return true;
  if (line.frames > 0) return line.bytes + bytes <= pacing_.window;
  return pacing_.rotation == 0 || fed_ < pacing_.rotation;
}

// Returns the next frame: from the peer whose turn it is, or from the next peer with a frame that fits. If none fits,
// a frame that precedes all frames in flight (send_window.h, "first").
std::optional<SendWindow::Choice> SendWindow::choose() const {
  if (waiting_ == 0) return std::nullopt;
  // The current peer, or the next one if its turn has used up the window.
  const std::size_t begin = given_ >= pacing_.window ? turn_ + 1 : turn_;
  for (std::size_t k = 0; k < lines_.size(); ++k) {
    const std::size_t turn = (begin + k) % lines_.size();
    if (!lines_[turn].heap.empty() && fits(lines_[turn])) return Choice{turn, 0};
  }
  const std::uint64_t first = waits_.first();
  if (first >= under_way_.first()) return std::nullopt;
  for (std::size_t turn = 0; turn < lines_.size(); ++turn)
    for (std::size_t k = 0; k < lines_[turn].heap.size(); ++k)
      if (lines_[turn].heap[k].order == first) return Choice{turn, k};
  return std::nullopt;
}

std::optional<SendWindow::Send> SendWindow::next() {
  const std::optional<Choice> choice = choose();
  if (!choice) return std::nullopt;
  Line& line = at(choice->turn);
  const Send send = line.heap[choice->at];
  if (choice->at == 0) {
    std::pop_heap(line.heap.begin(), line.heap.end(), after);
    line.heap.pop_back();
  } else {
    line.heap.erase(line.heap.begin() + static_cast<std::ptrdiff_t>(choice->at));
    std::make_heap(line.heap.begin(), line.heap.end(), after);
  }
  waits_.remove(send.order);
  under_way_.add(send.order);
  --waiting_;
  if (line.frames++ == 0) ++fed_;
  line.bytes += send.bytes;
  bytes_ += send.bytes;
  if (choice->turn != turn_ || given_ >= pacing_.window) given_ = 0;
  turn_ = choice->turn;
  given_ += send.bytes;
  return send;
}

void SendWindow::done(const Send& send) {
  under_way_.remove(send.order);
  Line& line = at(turn_of(send.peer));
  if (--line.frames == 0) --fed_;
  line.bytes -= send.bytes;
  bytes_ -= send.bytes;
}

void SendWindow::drop() {
  for (Line& line : lines_) line.heap.clear();
  waits_.clear();
  waiting_ = 0;
}

}  // namespace tithe::engine
