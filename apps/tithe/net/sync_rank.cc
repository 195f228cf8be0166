// SPDX-License-Identifier: Apache-2.0
// The ledger is kept in fp64 by all ranks together: each adds gradient + residual before - residual after, rank 0 takes
// the result off, and what is left of each value must be zero. Gradients are small integers times a power of two, so
// that these sums are exact, and the ledger of a codec that never rounds comes out as zero and not as almost zero.
#include "sync_rank.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>

#include "base/rng.h"
#include "tithe/seam/spec.h"

namespace tithe::cli {
namespace {

constexpr float kGrid = 1.0F / 1048576.0F;

// Heavy-tailed: the product of two draws of -127 .. 127.
float gradient(std::uint64_t key, std::size_t i) {
  const std::uint32_t r = draw32(key, static_cast<std::uint32_t>(i));
  const auto a = static_cast<std::int32_t>(r % 255) - 127;
  const auto b = static_cast<std::int32_t>((r >> 8) % 255) - 127;
  return static_cast<float>(a * b) * kGrid;
}

class RankRun {
 public:
  RankRun(Rank me, const SyncArgs& args, SyncBoard& board)
      : me_(me), args_(args), board_(board), tensor_(args.n), before_(args.n), after_(args.n) {}

  Status run(std::unique_ptr<Transport> transport, SyncOutcome* outcome) {
    SessionOptions options;
    options.codec = args_.codec;
    options.strategy = args_.strategy;
    options.choices = args_.choices;
    options.hosts = args_.hosts;
    options.servers = args_.servers;
    options.lanes = args_.lanes;
    options.pacer = args_.pacer;
    options.checksum = args_.checksum;
    options.average = false;  // the ledger is kept in gradient units
    Result<std::unique_ptr<Session>> session = Session::open(std::move(transport), options);
    if (!session.ok()) return session.status();
    for (int round = 0; round < kWarmUpRounds + args_.rounds; ++round) {
      TITHE_TRY(one_round(**session, round));
      TITHE_TRY(check(**session));
      if (args_.rounds_on_the_way()) TITHE_TRY(compare());
      if (me_ == 0) {
        gather(round, *outcome);
        outcome->plan = (*session)->plan_text();
        board_.rounds_done() = static_cast<std::uint32_t>(round + 1);
      }
      if (!board_.barrier()) return stopped();
    }
    return {};
  }

 private:
  static Status stopped() { return {Code::kCancelled, "another rank failed"}; }

  Status one_round(Session& session, int round) {
    key_ = rng_key(static_cast<std::uint64_t>(me_), static_cast<std::uint32_t>(round), 0, 0, 0);
    for (std::size_t i = 0; i < args_.n; ++i) tensor_[i] = gradient(key_, i);
    const std::uint64_t sent_before = session.stats().bytes_sent;
    const bool on_link = args_.link != "none";
    const Result<std::uint64_t> wire_before = on_link ? bytes_on_the_wire() : std::uint64_t{0};
    if (!wire_before.ok()) return wire_before.status();
    if (!board_.barrier()) return stopped();
    const auto begin = std::chrono::steady_clock::now();
    const Tensor bucket{kSyncKey, tensor_.data(), args_.n};
    Result<Ticket> ticket = session.sync({&bucket, 1});
    if (!ticket.ok()) return ticket.status();
    TITHE_TRY(session.commit());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    SyncBoard::RankResult& mine = board_.of(me_);
    mine.seconds = took.count();
    mine.bytes_sent = session.stats().bytes_sent - sent_before;
    if (on_link) {
      // Acknowledgements by others of its round still come after it: after the checks that follow, all are there.
      if (!board_.barrier()) return stopped();
      const Result<std::uint64_t> wire = bytes_on_the_wire();
      if (!wire.ok()) return wire.status();
      mine.wire_bytes = *wire - *wire_before;
    }
    mine.result_hash = XXH3_64bits(tensor_.data(), 4 * args_.n);
    return {};
  }

  Status check(Session& session) {
    TITHE_TRY(session.residual(kSyncKey, after_));
    const std::span<double> ledger = board_.numbers();
    const int world = board_.world();
    SyncBoard::RankResult& mine = board_.of(me_);
    mine.largest = 0;
    const bool works = me_ < world - args_.servers;
    // In turns, each rank on another slice.
    for (int step = 0; step < world; ++step) {
      const auto [first, last] = slice((me_ + step) % world);
      for (std::size_t i = first; i < last; ++i) {
        const float g = works ? gradient(key_, i) : 0.0F;  // what a server hands over is none
        ledger[i] += static_cast<double>(g) + before_[i] - after_[i];
        if (me_ == 0) ledger[i] -= tensor_[i];
        mine.largest = std::max(mine.largest, std::fabs(static_cast<double>(g) + before_[i]));
      }
      if (!board_.barrier()) return stopped();
    }
    mine.imbalance = 0;
    const auto [first, last] = slice(me_);
    for (std::size_t i = first; i < last; ++i) {
      const double off = std::fabs(std::exchange(ledger[i], 0.0));
      mine.imbalance = off > mine.imbalance || std::isnan(off) ? off : mine.imbalance;
    }
    std::swap(before_, after_);
    if (!board_.barrier()) return stopped();
    return {};
  }

  // With rank 0's result, which stands for a while where the ledger does.
  Status compare() {
    const std::span<double> shown = board_.numbers();
    if (me_ == 0) std::copy(tensor_.begin(), tensor_.end(), shown.begin());
    if (!board_.barrier()) return stopped();
    double apart = 0;
    for (std::size_t i = 0; i < args_.n; ++i) {
      const double off = std::fabs(tensor_[i] - shown[i]);
      apart = off > apart || std::isnan(off) ? off : apart;
    }
    board_.of(me_).apart = apart;
    if (!board_.barrier()) return stopped();
    if (me_ == 0) std::fill(shown.begin(), shown.end(), 0.0);
    return board_.barrier() ? Status{} : stopped();
  }

  std::pair<std::size_t, std::size_t> slice(int k) const {
    const auto world = static_cast<std::size_t>(board_.world());
    const auto at = static_cast<std::size_t>(k);
    return {args_.n * at / world, args_.n * (at + 1) / world};
  }

  void gather(int round, SyncOutcome& outcome) {
    double seconds = 0;
    double imbalance = 0;
    double largest = 0;
    std::uint64_t wire = 0;
    for (Rank r = 0; r < board_.world(); ++r) {
      const SyncBoard::RankResult& of = board_.of(r);
      seconds = std::max(seconds, of.seconds);
      imbalance = of.imbalance > imbalance || std::isnan(of.imbalance) ? of.imbalance : imbalance;
      largest = std::max(largest, of.largest);
      outcome.bytes_sent = std::max(outcome.bytes_sent, of.bytes_sent);
      wire = std::max(wire, of.wire_bytes);
      outcome.apart = of.apart > outcome.apart || std::isnan(of.apart) ? of.apart : outcome.apart;
      outcome.identical = outcome.identical && of.result_hash == board_.of(0).result_hash;
    }
    if (round >= kWarmUpRounds) outcome.seconds.push_back(seconds);
    outcome.wire_bytes = wire;
    const double error = imbalance == 0 ? 0 : imbalance / largest;
    outcome.ledger_error = error > outcome.ledger_error || std::isnan(error) ? error : outcome.ledger_error;
  }

  Rank me_;
  const SyncArgs& args_;
  SyncBoard& board_;
  std::uint64_t key_ = 0;
  std::vector<float> tensor_;  // the gradient, then the result
  std::vector<float> before_;  // residuals
  std::vector<float> after_;
};

}  // namespace

Status run_rank(Rank me, std::unique_ptr<Transport> transport, const SyncArgs& args, SyncBoard& board,
                SyncOutcome* outcome) {
  const Status s = [&]() -> Status {
    try {
      return RankRun(me, args, board).run(std::move(transport), outcome);
    } catch (const std::bad_alloc&) {
      return {Code::kUnsupported,
              fmt::format("not enough memory for {} ranks of {} values", args.ranks, args.n)};
    }
  }();
  if (!s.ok()) board.fail(s);
  return s;
}

}  // namespace tithe::cli
