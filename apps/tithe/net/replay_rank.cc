// SPDX-License-Identifier: Apache-2.0
#include "replay_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "encode_once.h"
#include "measure/gradients.h"
#include "rank_processes.h"
#include "tithe/connect.h"

namespace tithe::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

// Gradients are slices of so many normal values, drawn once per rank: copying is cheap, drawing is not.
constexpr std::size_t kPool = std::size_t{1} << 20;
constexpr double kMiB = 1 << 20;

struct Bucket {
  double ready_ms = 0;  // since the start of forward
  std::vector<float> values;
  std::vector<Tensor> tensors;
};

std::vector<Bucket> make_buckets(const bench::ModelList& model, const ReplayArgs& args) {
  std::vector<Bucket> out;
  for (const bench::TensorSpan span : buckets_of(model, args)) {
    Bucket& b = out.emplace_back();
    b.ready_ms = (model.forward_ms + span.back().ready_ms) * args.compute_scale;
    std::size_t n = 0;
    for (const bench::ModelTensor& t : span) n += t.values;
    b.values.resize(n);
    n = 0;
    for (const bench::ModelTensor& t : span) {
      b.tensors.push_back(
          {.key = t.name, .data = b.values.data() + n, .n = t.values, .dtype = DType::kF32, .row = t.row});
      n += t.values;
    }
  }
  return out;
}

HandOver hand_over_of(const std::string& text) {
  return text == "end" ? HandOver::kEnd : text == "turns" ? HandOver::kTurns : HandOver::kReady;
}

class ReplayRank {
 public:
  ReplayRank(Rank me, const ReplayArgs& args, const bench::ModelList& model, bool shaped, SyncBoard& board)
      : me_(me),
        args_(args),
        when_(hand_over_of(args.hand_over)),
        shaped_(shaped),
        compute_(compute_ms(model, args)),
        board_(board),
        buckets_(make_buckets(model, args)),
        pool_(sim::usual_gradients(kPool, static_cast<std::uint64_t>(me))) {}

  Status run(std::unique_ptr<Transport> transport, std::string* plan) {
    Result<std::unique_ptr<Session>> session = Session::open(std::move(transport), args_.session);
    if (!session.ok()) return session.status();
    for (int k = 0; k < kWarmUpSteps + args_.steps; ++k) {
      fill(k);
      if (!board_.barrier()) return {Code::kCancelled, "another rank failed"};
      StepNumbers warm{};
      const int timed = k - kWarmUpSteps;
      TITHE_TRY(step(**session, timed < 0 ? warm : numbers_of(board_, args_.steps, me_, timed)));
      if (me_ == 0) board_.rounds_done() = static_cast<std::uint32_t>(k + 1);
    }
    if (me_ == 0) *plan = (*session)->plan_text();
    return board_.barrier() ? Status{} : Status(Code::kCancelled, "another rank failed");
  }

 private:
  void fill(int step) {
    for (std::size_t k = 0; k < buckets_.size(); ++k) {
      std::vector<float>& values = buckets_[k].values;
      const std::uint64_t key = rng_key(static_cast<std::uint64_t>(me_), static_cast<std::uint32_t>(step),
                                        static_cast<std::uint32_t>(k), 0, 0);
      std::size_t from = key % kPool;
      for (std::size_t at = 0; at < values.size();) {
        const std::size_t n = std::min(values.size() - at, kPool - from);
        std::copy_n(pool_.begin() + static_cast<std::ptrdiff_t>(from), n,
                    values.begin() + static_cast<std::ptrdiff_t>(at));
        at += n;
        from = 0;
      }
    }
  }

  Status step(Session& session, StepNumbers& numbers) {
    const double cpu = process_seconds();
    const std::uint64_t sent = session.stats().bytes_sent;
    std::uint64_t wire = 0;
    TITHE_TRY(wire_bytes(wire));
    const Clock::time_point begin = Clock::now();
    const auto at = [&](double ms) {
      return begin + std::chrono::duration_cast<Clock::duration>(Milliseconds(ms));
    };
    double late = 0;
    std::vector<Ticket> tickets;
    for (const Bucket& b : buckets_) {
      const Clock::time_point ready = at(when_ == HandOver::kEnd ? compute_ : b.ready_ms);
      std::this_thread::sleep_until(ready);
      late = std::max(late, Milliseconds(Clock::now() - ready).count());
      const Result<Ticket> ticket = session.sync(b.tensors);
      if (!ticket.ok()) return ticket.status();
      if (when_ == HandOver::kTurns)
        TITHE_TRY(session.wait(*ticket));
      else
        tickets.push_back(*ticket);
    }
    std::this_thread::sleep_until(at(compute_));
    for (const Ticket ticket : tickets) TITHE_TRY(session.wait(ticket));
    TITHE_TRY(session.commit());
    numbers.step_ms = Milliseconds(Clock::now() - begin).count();
    numbers.late_ms = late;
    numbers.cpu_s = process_seconds() - cpu;
    numbers.bytes_sent = static_cast<double>(session.stats().bytes_sent - sent);
    const std::uint64_t before = wire;
    TITHE_TRY(wire_bytes(wire));
    numbers.wire_bytes = static_cast<double>(wire - before);
    return {};
  }

  Status wire_bytes(std::uint64_t& bytes) const {
    if (!shaped_) return {};
    const Result<std::uint64_t> now = bytes_on_the_wire();
    if (!now.ok()) return now.status();
    bytes = *now;
    return {};
  }

  const Rank me_;
  const ReplayArgs& args_;
  const HandOver when_;
  const bool shaped_;
  const double compute_;  // ms
  SyncBoard& board_;
  std::vector<Bucket> buckets_;
  std::vector<float> pool_;
};

}  // namespace

std::size_t numbers_needed(int ranks, int steps) {
  return static_cast<std::size_t>(ranks) * static_cast<std::size_t>(steps) * sizeof(StepNumbers) /
         sizeof(double);
}

StepNumbers& numbers_of(SyncBoard& board, int steps, Rank rank, int step) {
  static_assert(sizeof(StepNumbers) == 5 * sizeof(double));
  const auto row =
      static_cast<std::size_t>(rank) * static_cast<std::size_t>(steps) + static_cast<std::size_t>(step);
  return *reinterpret_cast<StepNumbers*>(&board.numbers()[row * sizeof(StepNumbers) / sizeof(double)]);
}

std::vector<bench::TensorSpan> buckets_of(const bench::ModelList& model, const ReplayArgs& args) {
  const auto cap = static_cast<std::size_t>(args.bucket_cap_mb * kMiB);
  return bench::buckets_of(model, std::min<std::size_t>(cap, kMiB), cap);
}

double forward_ms(const bench::ModelList& model, const ReplayArgs& args) {
  return model.forward_ms * args.compute_scale;
}

double compute_ms(const bench::ModelList& model, const ReplayArgs& args) {
  return (model.forward_ms + model.backward_ms()) * args.compute_scale;
}

Status replay_as_rank(const ReplayArgs& args, const bench::ModelList& model, const Hosts& hosts,
                      const std::optional<ShapedLink>& link, Rank me, SyncBoard& board, std::string* plan) {
  if (link.has_value()) {
    const int host = hosts.of_rank(me);
    if (hosts.ranks(args.ranks)[static_cast<std::size_t>(host)].front() == me)
      TITHE_TRY(enter_host(host, *link));
    keep_ucx_on_link();
    if (!board.barrier()) return {Code::kCancelled, "another rank failed"};
  }
  ReplayRank rank(me, args, model, link.has_value(), board);
  Result<std::unique_ptr<Transport>> transport =
      open_transport(args.transport, {.rank = me, .world = args.ranks, .all_gather = board.all_gather(me)});
  if (!transport.ok()) return transport.status();
  return rank.run(std::move(*transport), plan);
}

}  // namespace tithe::cli
