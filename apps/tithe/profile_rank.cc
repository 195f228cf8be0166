// SPDX-License-Identifier: Apache-2.0
#include "profile_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <thread>

#include "frame/checksum.h"
#include "one_shot.h"
#include "profile_codecs.h"
#include "profile_probes.h"
#include "rank_processes.h"
#include "tithe/connect.h"
#include "tithe/machine.h"

namespace tithe::cli {
namespace {

using Clock = std::chrono::steady_clock;

// What a rank leaves on the board for rank 0.
struct Found {
  double step, post, wake, turn, slice, check_byte, copy_value, byte_cpu, together, mutual;
  double spread;
};
// Not measured but assumed, as docs/simulate.md says: a step that has nothing to do (bench/results/engine.md), the
// longest message that asks nobody, and that to begin a bucket takes as long as to wake a lane.
constexpr double kStep = 0.5e-6;
constexpr std::size_t kEager = 8192;

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16] = {};
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

constexpr std::size_t kFound = sizeof(Found) / sizeof(double);

class ProfileRank {
 public:
  ProfileRank(Rank me, const ProfileArgs& args, SyncBoard& board) : me_(me), args_(args), board_(board) {}

  Status run(std::unique_ptr<Transport> transport, std::string* answer) {
    sim::Profile profile;
    TITHE_TRY(codecs(profile.costs));
    Found& mine = found(me_);
    alone(mine);
    TITHE_TRY(links(*transport));
    TITHE_TRY(rounds(std::move(transport), mine));
    std::sort(spread_.begin(), spread_.end());
    mine.spread = spread_.empty() ? 0 : spread_[spread_.size() / 2];
    if (!board_.meet()) return stopped();
    if (me_ == 0) {
      gather(profile);
      *answer = sim::to_json(profile);
    }
    return board_.meet() ? Status{} : stopped();
  }

 private:
  static Status stopped() { return {Code::kCancelled, "another rank failed"}; }
  Found& found(Rank r) {
    return *reinterpret_cast<Found*>(&board_.numbers()[static_cast<std::size_t>(r) * kFound]);
  }
  // Latency and rate from one rank to another, as the receiver found them; a rate below 0: it failed.
  double* link(Rank from, Rank to) {
    const auto world = static_cast<std::size_t>(board_.world());
    return &board_.numbers()[world * kFound +
                             2 * (static_cast<std::size_t>(from) * world + static_cast<std::size_t>(to))];
  }

  Status codecs(sim::Costs& costs) {
    std::vector<std::string> names = args_.codecs;
    if (names.empty())
      for (const Codec* c : all_codecs())
        if (c->phases.size() == 1) names.emplace_back(c->name);
    const std::vector<std::size_t> sizes = profile_sizes(args_.most_values);
    for (const std::string& name : names) {
      if (!board_.meet()) return stopped();
      const Result<Spec> spec = parse_spec(name);
      if (!spec.ok()) return spec.status();
      Result<sim::CodecCosts> measured = measure_codec(*spec, sizes, spread_);
      if (!measured.ok()) return measured.status();
      costs.codecs[to_string(*spec)] = std::move(*measured);
      if (me_ == 0) ++board_.rounds_done();
    }
    costs_ = &costs;
    return {};
  }

  // What needs no other rank.
  void alone(Found& mine) {
    constexpr std::size_t kBytes = std::size_t{1} << 22;
    std::vector<std::uint8_t> bytes(kBytes, 7);
    std::vector<float> to(kBytes / 4);
    std::uint64_t sum = 0;
    static_cast<void>(board_.meet());
    mine.check_byte = median_seconds(
                          9,
                          [&] {
                            const double begin = thread_seconds();
                            sum += checksum(ByteView(bytes).first(56), bytes);
                            return thread_seconds() - begin;
                          },
                          spread_) /
                      kBytes;
    mine.copy_value = median_seconds(
                          9,
                          [&] {
                            const double begin = thread_seconds();
                            std::copy_n(reinterpret_cast<const float*>(bytes.data()), to.size(), to.begin());
                            return thread_seconds() - begin;
                          },
                          spread_) /
                      static_cast<double>(to.size());
    bytes[0] = static_cast<std::uint8_t>(sum);
    mine.wake = seconds_to_wake();
    static_cast<void>(board_.meet());
    mine.slice = seconds_of_slice(board_.world());
    static_cast<void>(board_.meet());
  }

  // ---- Links, over the transport itself

  Status exchange(Transport& transport, Rank to, ByteView out, Rank from, Bytes in) {
    int waits = 0;
    if (from >= 0) {
      TITHE_TRY(transport.recv(from, kProbe, in, 1));
      ++waits;
    }
    if (to >= 0) {
      TITHE_TRY(transport.send(to, kProbe, out, 2));
      ++waits;
    }
    Completion done[4];
    const Clock::time_point begin = Clock::now();
    while (waits > 0) {
      const std::size_t n = transport.poll(done, std::chrono::milliseconds(100));
      for (std::size_t k = 0; k < n; ++k) {
        TITHE_TRY(done[k].status);
        --waits;
      }
      if (seconds_since(begin) > kPatience) return {Code::kTimeout, "nothing came for 30 seconds", from};
    }
    return {};
  }

  Status links(Transport& transport) {
    const int world = board_.world();
    constexpr int kTurns = 30;
    std::vector<std::uint8_t> small(64), large(bulk_bytes());
    for (Rank a = 0; a < world; ++a)
      for (Rank b = a + 1; b < world; ++b) {
        if (!board_.meet()) return stopped();
        if (me_ != a && me_ != b) continue;
        const Rank peer = me_ == a ? b : a;
        Status status;
        std::vector<double> turns;
        double own = 0;
        for (int k = 0; k < kTurns && status.ok(); ++k) {
          const double busy = thread_seconds();
          const Clock::time_point begin = Clock::now();
          if (me_ == a) status = exchange(transport, b, small, -1, {});
          if (status.ok()) status = exchange(transport, -1, {}, peer, small);
          if (me_ == b && status.ok()) status = exchange(transport, a, small, -1, {});
          turns.push_back(seconds_since(begin));
          own += (thread_seconds() - busy) / kTurns;
        }
        std::sort(turns.begin(), turns.end());
        // Beside what the two ranks do for it: a message is handed over, one wakes its receiver, on both sides.
        constexpr double kShortest = 1e-6;  // what is below is noise
        const double latency = std::max(kShortest, turns[turns.size() / 2] / 2 - own);
        own_turns_.push_back(own);
        for (const Rank from : {a, b}) {
          const Rank to = from == a ? b : a;
          // The receiver says when its clock begins.
          if (status.ok())
            status = me_ == from ? exchange(transport, -1, {}, to, small)
                                 : exchange(transport, from, small, -1, {});
          const Clock::time_point begin = Clock::now();
          if (status.ok())
            status = me_ == from ? exchange(transport, to, large, -1, {})
                                 : exchange(transport, -1, {}, from, large);
          if (me_ == to) {
            link(from, to)[0] = latency;
            link(from, to)[1] = status.ok() ? static_cast<double>(large.size()) / seconds_since(begin) : -1;
          }
        }
      }
    if (!board_.meet()) return stopped();
    if (world == 1) return {};
    // All at once: each to its right; then all to all, where what goes to a rank meets what comes from it.
    const std::vector<Rank> right{(me_ + 1) % world}, left{(me_ + world - 1) % world};
    found(me_).together = flood(transport, right, left, large, bulk_messages(), false);
    if (!board_.meet()) return stopped();
    std::vector<Rank> others;
    for (Rank k = 1; k < world; ++k) others.push_back((me_ + k) % world);
    const ByteView share = ByteView(large).first(large.size() / others.size());
    found(me_).mutual = flood(transport, others, others, share, bulk_messages(), true);
    return board_.meet() ? Status{} : stopped();
  }
  // Long enough that a link's bursts do not count, short enough for a slow one.
  std::size_t bulk_bytes() const {
    return args_.link == "none" ? std::size_t{1} << 24 : std::size_t{1} << 22;
  }
  // For about a second.
  std::size_t bulk_messages() const {
    if (args_.link == "none") return 20;
    const Result<Link> rate = parse_link(args_.link);
    constexpr double kFor = 1, kLeast = 3, kMost = 60;
    return static_cast<std::size_t>(
        std::clamp(kFor * rate->bytes_per_second / static_cast<double>(bulk_bytes()), kLeast, kMost));
  }

  // ---- Steps and messages, over whole sessions

  Status rounds(std::unique_ptr<Transport> transport, Found& mine) {
    Result<std::unique_ptr<Session>> session = Session::open(
        std::move(transport), {.codec = "fp32", .strategy = "gather", .lanes = args_.lanes, .min_values = 0});
    if (!session.ok()) return session.status();
    const auto others = static_cast<double>(board_.world() - 1);
    // Parts of one value: steps and messages, and nothing else. Twice as many, so that what a round costs drops out.
    double few = 0, many = 0, bytes_few = 0, bytes_many = 0;
    constexpr std::size_t kFew = 8, kMany = 72, kLong = std::size_t{1} << 18;
    TITHE_TRY(measure(**session, "few", kFew, 1, few));
    TITHE_TRY(measure(**session, "many", kMany, 1, many));
    const double part = std::max(0.0, many - few) / static_cast<double>(kMany - kFew);
    // load, encode, store, unload; a part's messages are posted and completed, both ways.
    constexpr double kSteps = 4;
    mine.step = kStep;
    mine.post = others > 0 ? std::max(0.0, part - kSteps * kStep) / (4 * others) : 0;
    // Of a turn of a small message there and back, what is not handing over and taking: to sleep, and to wake.
    std::sort(own_turns_.begin(), own_turns_.end());
    const double own = own_turns_.empty() ? 0 : own_turns_[own_turns_.size() / 2];
    mine.turn = std::max(0.0, own - 3 * mine.post);
    // The work of kernel and transport per byte, beside codec and checksum.
    TITHE_TRY(measure(**session, "short", 2, kLong / 16, bytes_few));
    TITHE_TRY(measure(**session, "long", 2, kLong, bytes_many));
    const double values = 2.0 * (static_cast<double>(kLong) - static_cast<double>(kLong) / 16);
    const sim::CodecCosts* fp32 = fp32_costs();
    const double each = static_cast<double>(kLong);
    const double codec =
        fp32 == nullptr
            ? 0
            : (fp32->encode.at(each) + fp32->store.at(each) + (others)*fp32->merge.at(each)) / each;
    const double checks = 4 * mine.check_byte * (1 + others);
    const double per_value = std::max(0.0, (bytes_many - bytes_few) / values - codec - checks);
    mine.byte_cpu = others > 0 ? per_value / (4 * 2 * others) : 0;  // half to send, half to receive
    return board_.meet() ? Status{} : stopped();
  }
  const sim::CodecCosts* fp32_costs() const {
    const auto found = costs_->codecs.find("fp32");
    return found == costs_->codecs.end() ? nullptr : &found->second;
  }
  // Processor seconds of a round over `tensors` tensors of n values.
  Status measure(Session& session, const std::string& name, std::size_t tensors, std::size_t n,
                 double& seconds) {
    std::vector<float> values(tensors * n, 1.0F);
    std::vector<std::string> keys;
    for (std::size_t k = 0; k < tensors; ++k) keys.push_back(fmt::format("{}{}", name, k));
    std::vector<Tensor> bucket;
    for (std::size_t k = 0; k < tensors; ++k) bucket.push_back({keys[k], values.data() + k * n, n});
    const auto round = [&]() -> Status {
      const Result<Ticket> ticket = session.sync(bucket);
      if (!ticket.ok()) return ticket.status();
      TITHE_TRY(session.wait(*ticket));
      return session.commit();
    };
    TITHE_TRY(round());
    Status status;
    seconds = median_seconds(
        7,
        [&] {
          constexpr int kRounds = 4;
          const double begin = process_seconds();
          for (int k = 0; k < kRounds && status.ok(); ++k) status = round();
          return (process_seconds() - begin) / kRounds;
        },
        spread_);
    return status;
  }

  void gather(sim::Profile& p) {
    const int world = board_.world();
    p.tithe = TITHE_VERSION;
    p.machine = sim::machine_name();
    p.target = target();
    p.date = today();
    p.transport = args_.transport;
    p.cores = static_cast<int>(std::thread::hardware_concurrency());
    p.ranks = world;
    p.lanes = args_.lanes;
    p.one_machine = true;
    const auto median = [&](double Found::*field) {
      std::vector<double> all;
      for (Rank r = 0; r < world; ++r) all.push_back(found(r).*field);
      std::sort(all.begin(), all.end());
      return all[all.size() / 2];
    };
    p.costs.step = median(&Found::step);
    p.costs.post = p.costs.complete = median(&Found::post);
    p.costs.wake = median(&Found::wake);
    p.costs.turn = median(&Found::turn);
    p.costs.slice = median(&Found::slice);
    p.costs.move = seconds_of_tick();
    p.costs.bucket = p.costs.wake;
    p.costs.check_byte = median(&Found::check_byte);
    p.costs.copy_value = median(&Found::copy_value);
    p.costs.send_byte = p.costs.receive_byte = median(&Found::byte_cpu);
    p.costs.eager_bytes = kEager;
    p.spread = median(&Found::spread);
    p.together_bytes_per_second = median(&Found::together);
    p.mutual_bytes_per_second = median(&Found::mutual);
    for (Rank a = 0; a < world; ++a)
      for (Rank b = 0; b < world; ++b) {
        if (a == b) continue;
        const double* l = link(a, b);
        sim::MeasuredLink one{.from = a, .to = b, .latency = l[0], .bytes_per_second = std::max(0.0, l[1])};
        if (l[1] < 0) one.failed = "a message did not arrive";
        p.links.push_back(std::move(one));
      }
  }

  const Rank me_;
  const ProfileArgs& args_;
  SyncBoard& board_;
  const sim::Costs* costs_ = nullptr;
  std::vector<double> spread_;
  std::vector<double> own_turns_;  // seconds of this rank's for a small message there and back, by pair
};

}  // namespace

std::size_t profile_numbers(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return n * kFound + 2 * n * n;
}

Status profile_as_rank(const ProfileArgs& args, const std::optional<ShapedLink>& link, Rank me,
                       SyncBoard& board, std::string* answer) {
  if (link.has_value()) {
    TITHE_TRY(enter_host(me, *link));
    keep_ucx_on_link();
  }
  Result<std::unique_ptr<Transport>> transport =
      open_transport(args.transport, {.rank = me, .world = args.ranks, .all_gather = board.all_gather(me)});
  if (!transport.ok()) return transport.status();
  return ProfileRank(me, args, board).run(std::move(*transport), answer);
}

}  // namespace tithe::cli
