// SPDX-License-Identifier: Apache-2.0
// Costs that cannot be measured alone are differences of two rounds. Rounds with few and with many parts of one value
// differ by steps and messages only; rounds with long and with short parts differ by the work per byte. The profile has
// the median over all ranks.
#include "profile_rank.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>

#include "advisor/measure/codec_speed.h"
#include "advisor/measure/links.h"
#include "base/quantile.h"
#include "base/rng.h"
#include "base/usable_cores.h"
#include "encode_once.h"
#include "engine/peers/session_config.h"
#include "engine/program/program.h"
#include "frame/checksum.h"
#include "local_ranks.h"
#include "profile_probes.h"
#include "tithe/connect.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/machine.h"
#include "transport/long_messages.h"

namespace tithe::cli {
namespace {

using Clock = std::chrono::steady_clock;
using sim::measure_codec, sim::median_seconds, sim::profile_sizes, sim::thread_seconds;

// An assumption that the file names: ranks are on processors of several kinds.
constexpr const char* kLikeRank0 = "codecs, of processors other than rank 0's";

// A rank's findings, which it leaves on the board for rank 0.
struct Found {
  double machine, processor;  // which it is, and its kind: hashes
  double step, bucket, post, wake, slice, checksum_byte, copy_value, byte_cpu;
  bench::FoundTogether together;
  double spread;
};

// The bits of a whole number that a double holds.
double number_of(std::string_view text) {
  std::uint64_t hash = 0;
  for (const char c : text) hash = mix64(hash + static_cast<unsigned char>(c) + 1);
  return static_cast<double>(hash >> 12);
}

constexpr std::size_t kFound = sizeof(Found) / sizeof(double);

class ProfileRank {
 public:
  ProfileRank(Rank me, const ProfileArgs& args, ProfileBoard& board) : me_(me), args_(args), board_(board) {}

  Status run(std::unique_ptr<Transport> transport, std::string* answer) {
    sim::Profile profile;
    Found& mine = found(me_);
    // The same for all containers and emulated hosts of a machine until it starts again.
    mine.machine = number_of(read_word("/proc/sys/kernel/random/boot_id"));
    mine.processor = number_of(sim::machine_name());
    profile.hosts = args_.launched ? transport->hosts().text(board_.world()) : args_.hosts;
    if (!board_.share()) return stopped();
    TITHE_TRY(codecs(profile.costs));
    alone(mine);
    TITHE_TRY(steps(mine));
    TITHE_TRY(links(*transport));
    if (all_links_work()) TITHE_TRY(rounds(std::move(transport), mine));  // else no session can be opened
    mine.spread = median(spread_);
    if (!board_.share()) return stopped();
    if (me_ == 0) {
      gather(profile);
      *answer = sim::to_json(profile);
    }
    return board_.barrier() ? Status{} : stopped();
  }

 private:
  static Status stopped() { return {Code::kCancelled, "another rank failed"}; }
  Found& found(Rank r) {
    return *reinterpret_cast<Found*>(&board_.numbers()[static_cast<std::size_t>(r) * kFound]);
  }
  static std::string why(const bench::FoundLink& l) {
    if (!l.failed()) return {};
    const auto code = static_cast<Code>(static_cast<int>(l.code));
    return fmt::format("{}: a message did not arrive", name(code));
  }

  Status codecs(sim::Costs& costs) {
    std::vector<std::string> names = args_.codecs;
    if (names.empty())
      for (const Codec* c : all_codecs()) names.emplace_back(c->name);
    const std::vector<std::size_t> sizes = profile_sizes(args_.max_values);
    for (const std::string& name : names) {
      if (!board_.barrier()) return stopped();
      const Result<Spec> spec = parse_spec(name);
      if (!spec.ok()) return spec.status();
      Result<sim::CodecCosts> measured = measure_codec(*spec, sizes, spread_);
      if (!measured.ok()) return measured.status();
      costs.codecs[to_string(*spec)] = std::move(*measured);
      if (me_ == 0) board_.codec_done();
    }
    costs_ = &costs;
    return {};
  }

  // Measures what needs no other rank.
  void alone(Found& mine) {
    constexpr std::size_t kBytes = std::size_t{1} << 22;
    std::vector<std::uint8_t> bytes(kBytes, 7);
    std::vector<float> to(kBytes / 4);
    std::uint64_t sum = 0;
    static_cast<void>(board_.barrier());
    const auto timed = [&](const auto& work) {
      const auto once = [&] {
        const double begin = thread_seconds();
        work();
        return thread_seconds() - begin;
      };
      return median_seconds(9, once, spread_);
    };
    mine.checksum_byte = timed([&] { sum += checksum(ByteView(bytes).first(56), bytes); }) / kBytes;
    const auto* from = reinterpret_cast<const float*>(bytes.data());
    mine.copy_value =
        timed([&] { std::copy_n(from, to.size(), to.begin()); }) / static_cast<double>(to.size());
    bytes[0] = static_cast<std::uint8_t>(sum);
    mine.wake = seconds_to_wake();
    static_cast<void>(board_.barrier());
    mine.slice = seconds_of_slice(ranks_equal(&Found::machine));
    static_cast<void>(board_.barrier());
  }

  // ---- Steps and buckets, in a session of one rank: there are no messages

  Status steps(Found& mine) {
    const SessionOptions options{
        .codec = "fp32", .strategy = "gather", .lanes = args_.lanes, .min_values = 0};
    Result<std::unique_ptr<Session>> session = Session::open(std::move(open_loop(1)[0]), options);
    if (!session.ok()) return session.status();
    const Result<Choices> choices = engine::choices_of(options, 1);
    if (!choices.ok()) return choices.status();
    const PlanTensor one{"one", 1, 1};
    const std::size_t per_part = engine::compile(make_plan({&one, 1}, *choices), {}, {}).steps.size();
    // Parts of one value, so the steps do no work. The difference to a bucket of twice as many parts does not contain
    // the cost of a round.
    constexpr std::size_t kFew = 8, kMany = 264, kBuckets = 33;
    double few = 0, many = 0, buckets = 0;
    if (!board_.barrier()) return stopped();
    TITHE_TRY(measure(**session, "few", 1, kFew, 1, few));
    TITHE_TRY(measure(**session, "many", 1, kMany, 1, many));
    TITHE_TRY(measure(**session, "in buckets", kBuckets, kFew, 1, buckets));
    const double part = std::max(0.0, many - few) / static_cast<double>(kMany - kFew);
    mine.step = part / static_cast<double>(per_part);
    mine.bucket = std::max(0.0, buckets - many) / static_cast<double>(kBuckets - 1);  // as many parts in all
    return {};
  }

  // ---- Links, over the transport itself

  Status links(Transport& transport) {
    const auto measure = [&](const bench::LinkOptions& options) {
      return bench::measure_links(transport, options,
                                  {[&] { return board_.barrier(); }, [&] { return board_.share(); }}, room_,
                                  links_found(), found(me_).together);
    };
    if (args_.link != "none") return measure(bench::options_for(parse_link(args_.link)->bytes_per_second));
    if (!args_.launched || board_.world() == 1) return measure({});
    // The link rates are unknown; short messages give an estimate, which limits the size of long ones.
    bench::LinkOptions quick;
    quick.bulk_bytes = std::size_t{1} << 18;
    quick.bulk_messages = 3;
    TITHE_TRY(measure(quick));
    if (!all_links_work()) return {};  // undelivered messages may still be in flight
    double slowest = std::numeric_limits<double>::infinity();
    for (const bench::FoundLink& l : links_found())
      if (l.bytes_per_second > 0) slowest = std::min(slowest, l.bytes_per_second);
    return measure(bench::options_for(slowest));
  }
  // By sender and receiver.
  std::span<bench::FoundLink> links_found() {
    const auto world = static_cast<std::size_t>(board_.world());
    return {reinterpret_cast<bench::FoundLink*>(&board_.numbers()[world * kFound]), world * world};
  }
  // The ranks with this rank's value of the field: all ranks of a machine, or of a kind of processor.
  int ranks_equal(double Found::*number) {
    int count = 0;
    for (Rank r = 0; r < board_.world(); ++r) count += found(r).*number == found(me_).*number ? 1 : 0;
    return count;
  }
  bool all_links_work() {
    return std::ranges::none_of(links_found(), [](const bench::FoundLink& l) { return l.failed(); });
  }

  // ---- Steps and messages, over whole sessions

  Status rounds(std::unique_ptr<Transport> transport, Found& mine) {
    Result<std::unique_ptr<Session>> session = Session::open(
        std::move(transport), {.codec = "fp32", .strategy = "gather", .lanes = args_.lanes, .min_values = 0});
    if (!session.ok()) return session.status();
    const auto others = static_cast<double>(board_.world() - 1);
    // Parts of one value, so there are only steps and messages. The difference to a bucket of twice as many parts does
    // not contain the cost of a round.
    double few = 0, many = 0, bytes_few = 0, bytes_many = 0;
    constexpr std::size_t kFew = 8, kMany = 72, kLong = std::size_t{1} << 18;
    TITHE_TRY(measure(**session, "few", 1, kFew, 1, few));
    TITHE_TRY(measure(**session, "many", 1, kMany, 1, many));
    const double part = std::max(0.0, many - few) / static_cast<double>(kMany - kFew);
    // load, encode, store, unload; a part's messages are posted and completed, both ways.
    constexpr double kSteps = 4;
    mine.post = others > 0 ? std::max(0.0, part - kSteps * mine.step) / (4 * others) : 0;
    // The work of kernel and transport per byte, beside codec and checksum.
    TITHE_TRY(measure(**session, "short", 1, 2, kLong / 16, bytes_few));
    TITHE_TRY(measure(**session, "long", 1, 2, kLong, bytes_many));
    const double values = 2.0 * (static_cast<double>(kLong) - static_cast<double>(kLong) / 16);
    const sim::CodecCosts* fp32 = fp32_costs();
    const double each = static_cast<double>(kLong);
    const double codec =
        fp32 == nullptr
            ? 0
            : (fp32->encode.at(each) + fp32->store.at(each) + (others)*fp32->merge.at(each)) / each;
    const double checks = 4 * mine.checksum_byte * (1 + others);
    const double per_value = std::max(0.0, (bytes_many - bytes_few) / values - codec - checks);
    mine.byte_cpu = others > 0 ? per_value / (4 * 2 * others) : 0;  // half to send, half to receive
    return board_.barrier() ? Status{} : stopped();
  }
  const sim::CodecCosts* fp32_costs() const {
    const auto found = costs_->codecs.find("fp32");
    return found == costs_->codecs.end() ? nullptr : &found->second;
  }
  // Processor seconds of a round of `buckets` buckets, each of `tensors` tensors of n values.
  Status measure(Session& session, const std::string& name, std::size_t buckets, std::size_t tensors,
                 std::size_t n, double& seconds) {
    const std::size_t all = buckets * tensors;
    std::vector<float> values(all * n, 1.0F);
    std::vector<std::string> keys;
    for (std::size_t k = 0; k < all; ++k) keys.push_back(fmt::format("{}{}", name, k));
    std::vector<Tensor> list;
    for (std::size_t k = 0; k < all; ++k) list.push_back({keys[k], values.data() + k * n, n});
    std::vector<Ticket> tickets;
    const auto round = [&]() -> Status {
      tickets.clear();
      for (std::size_t b = 0; b < buckets; ++b) {
        const Result<Ticket> ticket = session.sync(std::span(list).subspan(b * tensors, tensors));
        if (!ticket.ok()) return ticket.status();
        tickets.push_back(*ticket);
      }
      for (const Ticket t : tickets) TITHE_TRY(session.wait(t));
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
    p.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
    p.transport = args_.transport;
    p.cores = usable_cores();
    p.ranks = world;
    p.lanes = args_.lanes;
    p.one_machine = ranks_equal(&Found::machine) == world;
    const auto median_of = [&](auto number) {
      std::vector<double> all;
      for (Rank r = 0; r < world; ++r) all.push_back(number(found(r)));
      return tithe::median(std::move(all));
    };
    const auto median = [&](double Found::*field) {
      return median_of([&](const Found& f) { return f.*field; });
    };
    p.costs.step = median(&Found::step);
    p.costs.wake = median(&Found::wake);
    p.costs.bucket = median(&Found::bucket);
    p.costs.slice = median(&Found::slice);
    p.costs.move = seconds_of_tick();
    p.costs.checksum_byte = median(&Found::checksum_byte);
    p.costs.copy_value = median(&Found::copy_value);
    const sim::Costs assumed = sim::assumed_costs();
    if (ranks_equal(&Found::processor) < world) p.assumed.emplace_back(kLikeRank0);
    long_messages(p);
    const double ratio = median_of([](const Found& f) { return f.together.all_to_all_ratio; });
    p.costs.many_to_one =
        ratio > 0 ? std::min(1.0, ratio) : 1;  // with two hosts, no rank has several senders
    if (world > 1 && all_links_work()) {
      p.costs.post = p.costs.complete = median(&Found::post);
      p.costs.send_byte = p.costs.receive_byte = median(&Found::byte_cpu);
      // The round trip of a small message without posting and completing it: the time to sleep and to wake.
      p.costs.turn = median_of([](const Found& f) { return std::max(0.0, f.together.turn - 3 * f.post); });
    } else {
      for (const sim::CostField& f : sim::kCostFields)
        if (f.number == &sim::Costs::post || f.number == &sim::Costs::complete ||
            f.number == &sim::Costs::turn || f.number == &sim::Costs::send_byte ||
            f.number == &sim::Costs::receive_byte) {
          p.costs.*f.number = assumed.*f.number;
          p.assumed.emplace_back(f.in_profile);
        }
    }
    p.spread = median(&Found::spread);
    // A round is over when the last rank has its own.
    p.together_bytes_per_second = found(0).together.rate;
    for (Rank r = 1; r < world; ++r)
      p.together_bytes_per_second = std::min(p.together_bytes_per_second, found(r).together.rate);
    p.mutual_bytes_per_second = median_of([](const Found& f) { return f.together.mutual; });
    for (Rank a = 0; a < world; ++a)
      for (Rank b = 0; b < world; ++b) {
        if (a == b) continue;
        const auto row =
            static_cast<std::size_t>(a) * static_cast<std::size_t>(world) + static_cast<std::size_t>(b);
        const bench::FoundLink& l = links_found()[row];
        p.links.push_back({.from = a,
                           .to = b,
                           .latency = l.latency,
                           .bytes_per_second = l.bytes_per_second,
                           .failed = why(l)});
      }
  }

  // The rule and the threshold that the transport states. If a measurement of long messages contradicts the rule, the
  // measurement overrides it.
  void long_messages(sim::Profile& p) {
    p.costs.long_messages = long_messages_of(args_.transport.substr(0, args_.transport.find(':')));
    double late = 0;
    for (Rank r = 0; r < board_.world(); ++r) late = std::max(late, found(r).together.late);
    constexpr double kThere = 0.5;  // of its time: what had come before needs no more
    LongMessages& rule = p.costs.long_messages;
    if (late > 0 && late < kThere) {
      rule = {};
    } else if (late >= kThere && rule.protocol == SendProtocol::kEager) {
      constexpr std::size_t kUcxThreshold = 8192;  // UCX's threshold for its rendezvous protocol
      rule = {SendProtocol::kRendezvous, kUcxThreshold};
    }
    if (rule.protocol != SendProtocol::kEager) p.assumed.emplace_back("eager_bytes");
  }

  const Rank me_;
  const ProfileArgs& args_;
  ProfileBoard& board_;
  const sim::Costs* costs_ = nullptr;
  bench::LinkBuffers room_;  // it outlives the transport
  std::vector<double> spread_;
};

}  // namespace

std::size_t profile_numbers(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return n * kFound + n * n * (sizeof(bench::FoundLink) / sizeof(double));
}

Status profile_as_rank(const ProfileArgs& args, const Hosts& hosts, const std::optional<ShapedLink>& link,
                       Rank me, RankBoard& board, std::string* answer) {
  Result<std::unique_ptr<Transport>> transport = connect_ranks(args.transport, hosts, link, me, board);
  if (!transport.ok()) return transport.status();
  SharedProfileBoard shared(board);
  return ProfileRank(me, args, shared).run(std::move(*transport), answer);
}

Status profile_as_launched(const ProfileArgs& args, const Launch& launch, const Status& able,
                           std::string* answer) {
  // Two transports of one kind: one is measured, the other carries the board's messages.
  Result<std::unique_ptr<Transport>> words = open_transport(args.transport, connect_options(launch));
  if (!words.ok()) return words.status();
  DistantProfileBoard board(std::move(*words), profile_numbers(launch.world),
                            args.codecs.empty() ? all_codecs().size() : args.codecs.size());
  const Status status = [&]() -> Status {
    TITHE_TRY(able);
    if (!board.barrier()) return board.failure();
    Result<std::unique_ptr<Transport>> transport = open_transport(args.transport, connect_options(launch));
    if (!transport.ok()) return transport.status();
    return ProfileRank(launch.rank, args, board).run(std::move(*transport), answer);
  }();
  if (status.ok()) return {};
  if (board.failure().ok()) board.fail(status);
  return board.failure();
}

}  // namespace tithe::cli
