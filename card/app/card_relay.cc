// SPDX-License-Identifier: Apache-2.0
// The relay loop of `tithe card`: waits for frames on both ports and for an interrupt, and passes frames through the
// engine.
#include "card_relay.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "interrupt.h"
#include "local_ranks.h"

namespace tithe::cli {
namespace {

// Frames from one side before the other side gets its turn.
constexpr int kTurn = 64;

using Clock = std::chrono::steady_clock;

// A port with a fixed delay for each frame; frames keep their order.
class LongWay : public CardPort {
 public:
  LongWay(CardPort& port, double seconds)
      : port_(port),
        seconds_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
  int descriptor() const override { return port_.descriptor(); }
  Result<std::size_t> read(Bytes room) override { return port_.read(room); }
  bool write(ByteView frame) override {
    if (seconds_.count() == 0) return port_.write(frame);
    frames_.emplace_back(Clock::now() + seconds_, std::vector<std::uint8_t>(frame.begin(), frame.end()));
    return true;
  }
  // Sends the frames that are due; returns how many the port did not accept.
  std::uint64_t let_go() {
    std::uint64_t lost = 0;
    for (; !frames_.empty() && frames_.front().first <= Clock::now(); frames_.pop_front())
      lost += !port_.write(frames_.front().second);
    return lost;
  }
  // Time until the next frame is due; empty if there is none.
  std::optional<timespec> wait() const {
    if (frames_.empty()) return std::nullopt;
    const auto left = std::max<Clock::duration>(frames_.front().first - Clock::now(), Clock::duration{});
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    return timespec{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  }

 private:
  CardPort& port_;
  const Clock::duration seconds_;
  std::deque<std::pair<Clock::time_point, std::vector<std::uint8_t>>> frames_;
};

// True if the side may have more frames. A frame that the card drops, or that the other side does not accept, is lost.
Result<bool> turn(CardEngine& engine, card::Direction direction, CardPort& from, CardPort& to, Bytes room,
                  std::uint64_t& lost) {
  for (int i = 0; i < kTurn; ++i) {
    const Result<std::size_t> bytes = from.read(room);
    if (!bytes.ok()) return bytes.status();
    if (*bytes == 0) return false;
    const Result<ByteView> out = engine.pass(direction, room.first(*bytes));
    if (!out.ok()) return out.status();
    if (!out->empty()) lost += !to.write(*out);
  }
  return true;
}

}  // namespace

Result<RelayCounts> relay(CardEngine& engine, CardPort& host, CardPort& port, double delay_seconds) {
  LongWay wire(port, delay_seconds);
  const HeldInterrupts held;
  sigset_t interrupts;
  pthread_sigmask(SIG_BLOCK, nullptr, &interrupts);
  const int signals = signalfd(-1, &interrupts, SFD_CLOEXEC);
  if (signals < 0) return Status(Code::kIo, fmt::format("signalfd: {}", std::strerror(errno)));
  std::vector<std::uint8_t> room(kMaxPortFrame);
  RelayCounts counts;
  const auto begin = std::chrono::steady_clock::now();
  std::array<pollfd, 3> ends{pollfd{host.descriptor(), POLLIN, 0}, pollfd{wire.descriptor(), POLLIN, 0},
                             pollfd{signals, POLLIN, 0}};
  Status why;
  for (bool more = false; why.ok();) {
    const std::optional<timespec> next = more ? timespec{} : wire.wait();
    if (ppoll(ends.data(), ends.size(), next ? &*next : nullptr, nullptr) < 0 && errno != EINTR)
      why = {Code::kIo, fmt::format("poll: {}", std::strerror(errno))};
    if (ends[2].revents != 0) break;
    counts.lost[static_cast<std::size_t>(card::Direction::kToWire)] += wire.let_go();
    const Result<bool> sent = turn(engine, card::Direction::kToWire, host, wire, room,
                                   counts.lost[static_cast<std::size_t>(card::Direction::kToWire)]);
    if (!sent.ok()) {
      why = sent.status();
      break;
    }
    const Result<bool> received = turn(engine, card::Direction::kToHost, wire, host, room,
                                       counts.lost[static_cast<std::size_t>(card::Direction::kToHost)]);
    if (!received.ok()) {
      why = received.status();
      break;
    }
    more = *sent || *received;
  }
  // The interrupt has ended the relay; consume it, so that it does not also end the process.
  if (ends[2].revents != 0) {
    signalfd_siginfo which{};
    static_cast<void>(!read(signals, &which, sizeof which));
  }
  close(signals);
  if (!why.ok()) return why;
  counts.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  counts.processor_seconds = process_seconds();
  return counts;
}

}  // namespace tithe::cli
