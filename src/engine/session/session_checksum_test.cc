// SPDX-License-Identifier: Apache-2.0
// Checksums of headers only (Transport::rounds_payloads()): the error bounds if payloads are rounded in transit, and
// the refused options.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>

#include "base/bytes.h"
#include "base/secret.h"
#include "support/forwarding_transport.h"
#include "support/ranks.h"
#include "tithe/seam/frame.h"

namespace tithe {
namespace {

using testing::Ranks;

constexpr std::size_t kValues = 30'000;
constexpr float kUnit = 1.0F / 1024;  // the error of the card is less than this for values below 1
const Secret kKey{7};

// A transport that declares that cards may round payloads.
class Lossy : public testing::ForwardingTransport {
 public:
  explicit Lossy(std::unique_ptr<Transport> inner, bool declared = true)
      : ForwardingTransport(std::move(inner)), declared_(declared) {}
  bool rounds_payloads() const final { return declared_; }

 private:
  const bool declared_;
};

// A network card that rounds: it truncates the sent floats below 1 to multiples of kUnit, and changes nothing else.
class Rounding final : public Lossy {
 public:
  using Lossy::Lossy;
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    if (channel == 0) return inner_->send(peer, channel, bytes, op);
    std::vector<std::uint8_t>& frame = sent_.emplace_back(bytes.begin(), bytes.end());
    const auto payload = wire::get<std::uint64_t>(&frame[40]);
    for (std::uint8_t* at = &frame[kFrameHeaderBytes]; at < &frame[kFrameHeaderBytes] + payload;
         at += sizeof(float))
      if (const auto v = wire::get<float>(at); std::fabs(v) < 1) wire::put(at, std::trunc(v / kUnit) * kUnit);
    return inner_->send(peer, channel, frame, op);
  }

 private:
  std::deque<std::vector<std::uint8_t>> sent_;
};

template <class T>
std::vector<std::unique_ptr<Transport>> wrapped(int world, ByteView key = {}, bool declared = true) {
  auto all = open_loop(world, key);
  for (auto& one : all) one = std::make_unique<T>(std::move(one), declared);
  return all;
}

SessionOptions options(std::string strategy = "ring") {
  return {.codec = "fp32",
          .strategy = std::move(strategy),
          .average = false,
          .timeout = std::chrono::milliseconds(10'000)};
}

float gradient(Rank r, std::size_t i) {
  return std::sin(static_cast<float>(7 * i + 1) * static_cast<float>(r + 1)) / 8;
}

Status round(Session& session, std::vector<float>& values) {
  values.resize(kValues);
  for (std::size_t i = 0; i < kValues; ++i) values[i] = gradient(session.rank(), i);
  const Tensor t{.key = "a", .data = values.data(), .n = kValues};
  const Result<Ticket> ticket = session.sync({&t, 1});
  if (!ticket.ok()) return ticket.status();
  TITHE_TRY(session.wait(*ticket));
  return session.commit();
}

TEST(SessionChecksum, rounded_on_the_way_sums_are_within_a_unit_of_each_hop) {
  constexpr int kWorld = 3;
  for (const char* strategy : {"ring", "server", "gather"})
    for (const ByteView key : {ByteView{}, ByteView(kKey)}) {
      SCOPED_TRACE(strategy);
      std::vector<std::vector<float>> results(kWorld);
      Ranks ranks(wrapped<Rounding>(kWorld, key), options(strategy));
      ranks.each([&](Rank r) {
        for (int k = 0; k < 2; ++k) {
          const Status s = round(ranks[r], results[static_cast<std::size_t>(r)]);
          ASSERT_TRUE(s.ok()) << s.what();
        }
      });
      float off = 0, apart = 0;
      for (std::size_t i = 0; i < kValues; ++i) {
        float sum = 0;
        for (Rank r = 0; r < kWorld; ++r) sum += gradient(r, i);
        for (const auto& result : results) {
          off = std::max(off, std::fabs(result[i] - sum));
          apart = std::max(apart, std::fabs(result[i] - results[0][i]));
        }
      }
      EXPECT_GT(off, kUnit / 2) << "the payloads must be rounded";
      EXPECT_LT(off, kWorld * kUnit);
      EXPECT_GT(apart, 0) << "the owner's own copy is not rounded, so the ranks differ";
      EXPECT_LT(apart, (strategy == std::string_view("gather") ? kWorld : 1) * kUnit);
    }
}

TEST(SessionChecksum, by_default_a_payload_that_was_rounded_ends_the_job) {
  for (const ByteView key : {ByteView{}, ByteView(kKey)}) {
    SessionOptions o = options();
    o.authenticate = "headers";  // otherwise the tag of a small frame detects it first
    Ranks ranks(wrapped<Rounding>(2, key, false), o);
    std::vector<Status> ends(2);
    ranks.each([&](Rank r) {
      std::vector<float> values;
      ends[static_cast<std::size_t>(r)] = round(ranks[r], values);
    });
    EXPECT_TRUE(std::ranges::any_of(ends,
                                    [](const Status& s) {
                                      return s.code() == Code::kCorrupt &&
                                             s.what().find("checksum differs") != std::string::npos;
                                    }))
        << ends[0].what() << "; " << ends[1].what();
    for (const Status& s : ends) EXPECT_FALSE(s.ok());
  }
}

TEST(SessionChecksum, without_rounding_the_bits_are_those_of_the_default) {
  for (const char* strategy : {"ring", "server", "gather"}) {
    std::vector<std::vector<float>> both[2];
    for (const bool whole : {false, true}) {
      auto& results = both[whole ? 1 : 0];
      results.resize(3);
      Ranks ranks(wrapped<Lossy>(3, kKey, !whole), options(strategy));
      ranks.each([&](Rank r) {
        const Status s = round(ranks[r], results[static_cast<std::size_t>(r)]);
        ASSERT_TRUE(s.ok()) << s.what();
      });
    }
    EXPECT_EQ(both[0], both[1]) << strategy;
    EXPECT_EQ(both[0][0], both[0][2]) << strategy;
  }
}

TEST(SessionChecksum, ranks_that_differ_in_it_are_named) {
  auto transports = open_loop(2);
  transports[0] = std::make_unique<Lossy>(std::move(transports[0]));
  Ranks ranks(std::move(transports), options());
  ranks.each([&](Rank r) {
    std::vector<float> values;
    const Status s = round(ranks[r], values);
    EXPECT_EQ(s.code(), Code::kMismatch) << s.what();
    if (r == 1) return;  // rank 1 may fail by the report of rank 0
    EXPECT_EQ(s.peer(), 1) << s.what();
    EXPECT_NE(s.what().find("checksum=headers"), std::string::npos) << s.what();
  });
}

TEST(SessionChecksum, of_headers_is_refused_where_payloads_are_no_plain_floats) {
  const auto refused = [](auto change, std::string_view why) {
    SessionOptions o = options("server");
    change(o);
    const Status s = Session::open(std::move(wrapped<Lossy>(1)[0]), o).status();
    EXPECT_EQ(s.code(), Code::kInvalid) << why;
    EXPECT_NE(s.what().find(why), std::string::npos) << s.what();
  };
  refused([](SessionOptions& o) { o.codec = "bf16"; }, "the codec is bf16: use codec fp32");
  refused([](SessionOptions& o) { o.codec = SessionOptions{}.codec; }, "use codec fp32");
  refused([](SessionOptions& o) { o.codec = "auto"; }, "codec auto");
  refused([](SessionOptions& o) { o.choices = R"({"*.bias": "fp16"})"; }, "sends fp16");
  refused([](SessionOptions& o) { o.choices = R"({"a": {"strategy": "hosts", "inside": "bf16"}})"; },
          "sends bf16");
  refused([](SessionOptions& o) { o.authenticate = "payloads"; }, "authenticate=headers");
  SessionOptions whole = options();
  whole.choices = R"({"a": {"strategy": "hosts", "inside": "fp32"}})";
  EXPECT_TRUE(Session::open(std::move(wrapped<Lossy>(1)[0]), whole).ok());
}

TEST(SessionChecksum, of_headers_keeps_other_codecs_from_being_proposed) {
  Ranks ranks(wrapped<Lossy>(2), options());
  ranks.each([&](Rank r) {
    std::vector<float> values;
    ASSERT_TRUE(round(ranks[r], values).ok());
  });
  const Status s = ranks[0].propose(R"({"a": "bf16"})");
  EXPECT_EQ(s.code(), Code::kInvalid);
  EXPECT_NE(s.what().find("lossy_card=on"), std::string::npos) << s.what();
  EXPECT_TRUE(ranks[0].propose(R"({"a": {"strategy": "server"}})").ok());
}

}  // namespace
}  // namespace tithe
