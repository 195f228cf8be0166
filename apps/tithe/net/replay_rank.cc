// SPDX-License-Identifier: Apache-2.0
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "advisor/measure/gradients.h"
#include "base/rng.h"
#include "local_ranks.h"
#include "replay.h"

namespace tithe::cli {
namespace {

using StepClock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

// Each rank draws a pool of this many gradients once, and copies from it in each step: drawing takes longer.
constexpr std::size_t kPool = std::size_t{1} << 20;

struct Bucket {
  double ready_ms = 0;  // since the start of forward
  std::vector<Tensor> tensors;
};

// `values`: memory for the model's values, in the order of its tensors.
std::vector<Bucket> make_buckets(const bench::ModelList& model, const ReplayArgs& args, float* values) {
  std::vector<Bucket> out;
  for (const bench::TensorSpan span : bench::buckets_of(model, args.bucket_cap_mb)) {
    Bucket& b = out.emplace_back();
    b.ready_ms = (model.forward_ms + span.back().ready_ms) * args.compute_scale;
    for (const bench::ModelTensor& t : span) {
      b.tensors.push_back({.key = t.name, .data = values, .n = t.values, .dtype = DType::kF32, .row = t.row});
      values += t.values;
    }
  }
  return out;
}

// Products of two integers from -127 to 127, times 2^-20: fp32 and fp64 add them without rounding, and like gradients
// they are heavy-tailed.
std::vector<float> exact_gradients(std::size_t n, Rank rank) {
  constexpr float kUnit = 1.0F / 1048576.0F;
  const std::uint64_t key = rng_key(static_cast<std::uint64_t>(rank), 0, 0, 0, 0);
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t bits = draw32(key, static_cast<std::uint32_t>(i));
    const auto a = static_cast<std::int32_t>(bits % 255) - 127;
    const auto b = static_cast<std::int32_t>((bits >> 8) % 255) - 127;
    out[i] = static_cast<float>(a * b) * kUnit;
  }
  return out;
}

class ReplayRank {
 public:
  ReplayRank(Rank me, const ReplayArgs& args, const bench::ModelList& model, RankBoard& board)
      : me_(me),
        args_(args),
        compute_(compute_ms(model, args)),
        board_(board),
        values_(model.values()),
        buckets_(make_buckets(model, args, values_.data())),
        pool_(args.keeps_ledger() ? exact_gradients(kPool, me)
                                  : sim::synthetic_gradients(kPool, static_cast<std::uint64_t>(me))),
        gradients_(args.keeps_ledger() ? values_.size() : 0),
        residual_before_(gradients_.size()),
        residual_after_(gradients_.size()) {}

  Status run(std::unique_ptr<Transport> transport, std::string* plan) {
    Result<std::unique_ptr<Session>> session = Session::open(std::move(transport), args_.session);
    if (!session.ok()) return session.status();
    for (int k = 0; k < kWarmUpSteps + args_.steps; ++k) {
      StepNumbers& numbers = numbers_of(board_, args_, me_, k);
      fill(k);
      TITHE_TRY(board_.barrier());
      TITHE_TRY(timed_step(**session, numbers));
      TITHE_TRY(board_.barrier());
      TITHE_TRY(count_wire_bytes(numbers));
      TITHE_TRY(check_laws(**session, numbers));
      if (me_ == 0) board_.rounds_done() = static_cast<std::uint32_t>(k + 1);
    }
    if (me_ == 0) *plan = (*session)->plan_text();
    return board_.barrier();
  }

 private:
  void fill(int step) {
    const std::uint64_t key =
        rng_key(static_cast<std::uint64_t>(me_), static_cast<std::uint32_t>(step), 0, 0, 0);
    std::size_t from = key % kPool;
    for (std::size_t at = 0; at < values_.size();) {
      const std::size_t n = std::min(values_.size() - at, kPool - from);
      std::copy_n(&pool_[from], n, &values_[at]);
      at += n;
      from = 0;
    }
    const bool server = me_ >= args_.ranks - args_.session.servers;  // the session ignores its gradients
    if (args_.keeps_ledger() && !server) gradients_ = values_;
  }

  Status timed_step(Session& session, StepNumbers& numbers) {
    const double cpu = process_seconds();
    const std::uint64_t sent = session.stats().bytes_sent;
    const StepClock::time_point begin = StepClock::now();
    const auto at = [&](double ms) {
      return begin + std::chrono::duration_cast<StepClock::duration>(Milliseconds(ms));
    };
    numbers.late_ms = 0;
    std::vector<Ticket> tickets;
    for (const Bucket& b : buckets_) {
      const StepClock::time_point ready = at(args_.hand_over == "end" ? compute_ : b.ready_ms);
      std::this_thread::sleep_until(ready);
      numbers.late_ms = std::max(numbers.late_ms, Milliseconds(StepClock::now() - ready).count());
      const Result<Ticket> ticket = session.sync(b.tensors);
      if (!ticket.ok()) return ticket.status();
      if (args_.hand_over == "turns")
        TITHE_TRY(session.wait(*ticket));
      else
        tickets.push_back(*ticket);
    }
    std::this_thread::sleep_until(at(compute_));
    for (const Ticket ticket : tickets) TITHE_TRY(session.wait(ticket));
    TITHE_TRY(session.commit());
    numbers.step_ms = Milliseconds(StepClock::now() - begin).count();
    numbers.cpu_s = process_seconds() - cpu;
    numbers.bytes_sent = static_cast<double>(session.stats().bytes_sent - sent);
    return {};
  }

  // All bytes since the previous step, so that late acknowledgements are counted too.
  Status count_wire_bytes(StepNumbers& numbers) {
    if (args_.link == "none") return {};
    const Result<std::uint64_t> bytes = bytes_on_the_wire();
    if (!bytes.ok()) return bytes.status();
    numbers.wire_bytes = static_cast<double>(*bytes - std::exchange(wire_bytes_, *bytes));
    return {};
  }

  Status check_laws(Session& session, StepNumbers& numbers) {
    numbers.result_hash = XXH3_64bits(values_.data(), sizeof(float) * values_.size());
    if (args_.keeps_ledger()) TITHE_TRY(check_ledger(session, numbers));
    if (args_.cards_may_round) TITHE_TRY(measure_apart(numbers));
    return {};
  }

  // The ranks take turns to add up the ledger in shared fp64 numbers. Rank 0 begins with minus the result, so the sums
  // are zero after the last rank. They are exactly zero for a codec that never rounds, because gradients are multiples
  // of 2^-20.
  Status check_ledger(Session& session, StepNumbers& numbers) {
    TITHE_TRY(session.residual(kOneTensor, residual_after_));
    const std::span<double> sums = board_.numbers().last(values_.size());
    for (Rank turn = 0; turn < args_.ranks; ++turn) {
      for (std::size_t i = 0; turn == me_ && i < sums.size(); ++i) {
        const double before = static_cast<double>(gradients_[i]) + residual_before_[i];
        sums[i] = (me_ == 0 ? -static_cast<double>(values_[i]) : sums[i]) + before - residual_after_[i];
        numbers.largest = std::max(numbers.largest, std::fabs(before));
        if (me_ == args_.ranks - 1) numbers.imbalance = max_or_nan(numbers.imbalance, std::fabs(sums[i]));
      }
      TITHE_TRY(board_.barrier());
    }
    std::swap(residual_before_, residual_after_);
    return {};
  }

  // Compares with rank 0's results, which the shared numbers hold meanwhile.
  Status measure_apart(StepNumbers& numbers) {
    const std::span<double> first = board_.numbers().last(values_.size());
    if (me_ == 0) std::copy(values_.begin(), values_.end(), first.begin());
    TITHE_TRY(board_.barrier());
    for (std::size_t i = 0; i < first.size(); ++i)
      numbers.apart = max_or_nan(numbers.apart, std::fabs(values_[i] - first[i]));
    return board_.barrier();
  }

  const Rank me_;
  const ReplayArgs& args_;
  const double compute_;  // ms
  RankBoard& board_;
  std::vector<float> values_;  // of all tensors: gradients before a step, results after it
  std::vector<Bucket> buckets_;
  std::vector<float> pool_;
  std::vector<float> gradients_, residual_before_, residual_after_;  // of the ledger; empty without it
  std::uint64_t wire_bytes_ = 0;  // the link's count after the previous step
};

constexpr std::size_t kRow = sizeof(StepNumbers) / sizeof(double);
static_assert(sizeof(StepNumbers) == kRow * sizeof(double));

std::size_t row_of(const ReplayArgs& args, Rank rank, int step) {
  return static_cast<std::size_t>(rank) * static_cast<std::size_t>(kWarmUpSteps + args.steps) +
         static_cast<std::size_t>(step);
}

}  // namespace

std::size_t numbers_needed(const ReplayArgs& args, const bench::ModelList& model) {
  const bool shared_values = args.keeps_ledger() || args.cards_may_round;
  return row_of(args, args.ranks, 0) * kRow + (shared_values ? model.values() : 0);
}

StepNumbers& numbers_of(RankBoard& board, const ReplayArgs& args, Rank rank, int step) {
  return *reinterpret_cast<StepNumbers*>(&board.numbers()[row_of(args, rank, step) * kRow]);
}

double forward_ms(const bench::ModelList& model, const ReplayArgs& args) {
  return model.forward_ms * args.compute_scale;
}

double compute_ms(const bench::ModelList& model, const ReplayArgs& args) {
  return (model.forward_ms + model.backward_ms()) * args.compute_scale;
}

Status run_rank(const ReplayArgs& args, const bench::ModelList& model, Rank me,
                std::unique_ptr<Transport> transport, RankBoard& board, std::string* plan) {
  return ReplayRank(me, args, model, board).run(std::move(transport), plan);
}

}  // namespace tithe::cli
