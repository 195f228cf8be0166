// SPDX-License-Identifier: Apache-2.0
// A flipped bit on any connection between ranks, and links that break, over the transport tcp, whose connections pass
// through a relay. The bit can be in every phase of a job: handshakes, cards, frames, grants, the end of a round, a
// proposal. The result is an immediate error that names the sender of the bit, or no error.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/relay.h"
#include "support/transport_world.h"
#include "tithe/session.h"
#include "transport/tcp/tcp_transport.h"

namespace tithe {
namespace {

using namespace std::chrono_literals;
using testing::Relay;

constexpr int kWorld = 3;
constexpr int kRounds = 4;

// All connections between ranks go through the relay. The link number is caller * world + called.
class Job {
 public:
  explicit Job(bool tls, int world = kWorld) : world_(world), tls_(tls) {}

  std::vector<Status> run(const SessionOptions& options,
                          const std::function<void(Rank, int round)>& at = {}) {
    std::vector<std::unique_ptr<tcp::TcpTransport>> transports;
    std::vector<std::vector<tcp::Endpoint>> ears;
    for (Rank r = 0; r < world_; ++r) {
      tcp::Options how{.streams = 2};
      if (tls_) {
        auto credentials = tcp::Credentials::load(testing::with_keys("KEYS"), r);
        EXPECT_TRUE(credentials.ok()) << credentials.status().what();
        if (credentials.ok()) how.credentials = *credentials;
      }
      transports.push_back(std::make_unique<tcp::TcpTransport>(r, world_, how, 60s));
      ears.push_back({{asio::ip::address_v4::loopback(), 0}});
      EXPECT_TRUE(transports.back()->listen(ears.back()).ok());
    }
    std::vector<std::vector<std::vector<tcp::Endpoint>>> ways(
        static_cast<std::size_t>(world_),
        std::vector<std::vector<tcp::Endpoint>>(static_cast<std::size_t>(world_)));
    for (Rank from = 0; from < world_; ++from)
      for (Rank to = 0; to < world_; ++to) {
        if (from == to) continue;
        const int port = relay.link(from * world_ + to, ears[static_cast<std::size_t>(to)][0].port());
        ways[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] = {
            {asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)}};
      }
    std::vector<Status> out(static_cast<std::size_t>(world_));
    std::atomic<int> playing = world_;
    testing::run_ranks(world_, [&](Rank me) {
      const auto i = static_cast<std::size_t>(me);
      out[i] = transports[i]->connect(Secret{5}, ways[i], 60s, {});
      std::unique_ptr<Session> session;
      if (out[i].ok()) {
        auto opened = Session::open(std::move(transports[i]), options);
        out[i] = opened.status();
        if (opened.ok()) session = std::move(*opened);
      }
      for (int round = 0; round < kRounds && out[i].ok(); ++round) {
        if (at) at(me, round);
        out[i] = play(*session, me, round);
      }
      --playing;
      while (playing > 0) std::this_thread::sleep_for(1ms);  // other tests cover ranks that leave early
      session.reset();
      transports[i].reset();
    });
    return out;
  }

  Relay relay;

 private:
  static Status play(Session& session, Rank me, int round) {
    if (me == 0 && round == 1) (void)session.propose(R"({"*": "bf16"})");
    std::vector<float> large(3000, static_cast<float>(me)), small(40, 1.0F);
    const Tensor tensors[] = {{.key = "large", .data = large.data(), .n = large.size()},
                              {.key = "small", .data = small.data(), .n = small.size()}};
    const Result<Ticket> ticket = session.sync(tensors);
    if (!ticket.ok()) return ticket.status();
    TITHE_TRY(session.wait(*ticket));
    return session.commit();
  }
  const int world_;
  const bool tls_;
};

std::string texts(const std::vector<Status>& all) {
  std::string text;
  for (std::size_t r = 0; r < all.size(); ++r)
    fmt::format_to(std::back_inserter(text), "  rank {}: {} {} {}\n", r, name(all[r].code()), all[r].peer(),
                   all[r].what());
  return text;
}

class DamagedLinks : public ::testing::TestWithParam<bool> {};  // parameter: with TLS

// The bit can be in a card, a done message, a record's length or a grant. The timeouts are a minute, so only the
// detection of the bit can end a round.
TEST_P(DamagedLinks, a_flipped_bit_is_named_at_once) {
  const bool tls = GetParam();
  SessionOptions options{
      .codec = "fp32", .strategy = "ring", .min_values = 0, .timeout = 60s, .patience = 60s};
  // OpenSSL waits for the rest of a record whose length was increased.
  if (tls) options.timeout = 3s;
  std::map<Relay::Place, std::uint64_t> passed;
  {
    Job calm(tls);
    const auto all = calm.run(options);
    for (const Status& s : all) ASSERT_TRUE(s.ok()) << texts(all);
    passed = calm.relay.passed();
  }
  std::mt19937_64 dice(7);
  int struck = 0, healed = 0;
  for (const auto& [place, bytes] : passed) {
    // Handshakes and first messages densely, then random positions.
    std::vector<std::uint64_t> at;
    for (std::uint64_t byte = dice() % 160; byte < std::min<std::uint64_t>(bytes, 400); byte += 160)
      at.push_back(byte);
    for (int k = 0; k < (tls ? 1 : 2); ++k) at.push_back(dice() % std::max<std::uint64_t>(bytes, 1));
    for (const std::uint64_t byte : at) {
      const int bit = static_cast<int>(dice() % 8);
      Job job(tls);
      job.relay.flip(place, byte, bit);
      const auto all = job.run(options);
      if (!job.relay.flipped()) continue;
      ++struck;
      const Rank caller = place.link / kWorld, called = place.link % kWorld;
      const Rank sender = place.back ? called : caller;
      const std::string where =
          fmt::format("{} of connection {} from rank {} to rank {}, byte {} of {}, bit {}\n{}",
                      place.back ? "the way back" : "the way there", place.connection, caller, called, byte,
                      bytes, bit, texts(all));
      healed += std::all_of(all.begin(), all.end(), [](const Status& s) { return s.ok(); });
      for (const Status& s : all) {
        if (s.ok()) continue;  // the session had ended before, or the handshake was repeated
        if (tls) {
          EXPECT_TRUE(s.code() == Code::kCorrupt || s.code() == Code::kPeerLost || s.code() == Code::kTimeout)
              << where;
          EXPECT_TRUE(s.peer() == caller || s.peer() == called || s.peer() == Status::kNoPeer) << where;
        } else {
          EXPECT_EQ(s.code(), Code::kCorrupt) << where;
          EXPECT_EQ(s.peer(), sender) << where;
        }
        EXPECT_EQ(s.what().find("same options"), std::string::npos) << where;
      }
    }
  }
  EXPECT_GT(struck, tls ? 10 : 20);
  EXPECT_GT(healed, 0);
  EXPECT_LT(healed, struck);
}

INSTANTIATE_TEST_SUITE_P(tcp, DamagedLinks, ::testing::Bool(),
                         [](const auto& how) { return how.param ? "tls" : "plain"; });

// A link between two ranks breaks or becomes silent: all ranks report the link and name no rank.
class CutLinks : public ::testing::TestWithParam<Relay::LinkState> {};

TEST_P(CutLinks, all_ranks_name_nobody) {
  constexpr int kMany = 4;
  for (const auto& [a, b] : {std::pair(0, 1), std::pair(1, 3)}) {
    Job job(false, kMany);
    const auto between = [a = a, b = b](int link) {
      return (link / kMany == a && link % kMany == b) || (link / kMany == b && link % kMany == a);
    };
    const auto all = job.run({.codec = "fp32", .strategy = "gather", .min_values = 0, .timeout = 2s},
                             [&](Rank me, int round) {
                               if (me == a && round == 2) job.relay.set(GetParam(), between);
                             });
    for (const Status& s : all) {
      EXPECT_EQ(s.code(), GetParam() == Relay::LinkState::kHolds ? Code::kTimeout : Code::kPeerLost)
          << texts(all);
      EXPECT_EQ(s.peer(), Status::kNoPeer) << texts(all);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(tcp, CutLinks,
                         ::testing::Values(Relay::LinkState::kHolds, Relay::LinkState::kBreaks),
                         [](const auto& state) {
                           return state.param == Relay::LinkState::kHolds ? "silent" : "broken";
                         });

}  // namespace
}  // namespace tithe
