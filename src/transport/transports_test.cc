// SPDX-License-Identifier: Apache-2.0
#include "transport/transports.h"

#include <gtest/gtest.h>

#include <set>

#include "support/transport_world.h"

namespace tithe {
namespace {

using namespace std::chrono_literals;
using Blobs = std::vector<std::vector<std::uint8_t>>;

std::vector<std::string> chosen(std::string_view text) {
  const Result<TransportChoice> choice = choose_transport(text);
  EXPECT_TRUE(choice.ok()) << choice.status().what();
  return choice.ok() ? choice->values : std::vector<std::string>{};
}

std::string refusal(std::string_view text) {
  const Status s = choose_transport(text).status();
  EXPECT_EQ(s.code(), Code::kInvalid) << text;
  return s.what();
}

TEST(Transports, each_line_defines_a_complete_transport) {
  std::set<std::string_view> names;
  for (const TransportKind* kind : all_transports()) {
    EXPECT_TRUE(names.insert(kind->name).second) << kind->name << " is duplicated";
    EXPECT_EQ(find_transport(kind->name), kind);
    EXPECT_FALSE(kind->doc.empty());
    EXPECT_TRUE((kind->open == nullptr) != (kind->open_threads == nullptr)) << kind->name;
    EXPECT_FALSE(kind->examples.empty());
    for (const std::string_view example : kind->examples) {
      const Result<TransportChoice> choice = choose_transport(example);
      if (!kind->usable().ok()) continue;
      ASSERT_TRUE(choice.ok()) << choice.status().what();
      EXPECT_EQ(choice->kind, kind);
    }
    for (const TransportOption& option : kind->options) EXPECT_FALSE(option.doc.empty()) << option.name;
  }
}

// If rank 0 fails to connect, the other ranks must get its reason and not "closed in good order".
TEST(Transports, failed_connect_gives_the_reason) {
  for (const TransportKind* kind : all_transports()) {
    if (kind->open == nullptr || !kind->usable().ok()) continue;
    testing::ThreadGather gather(3);
    Status statuses[3];
    testing::run_ranks(3, [&](Rank me) {
      ConnectOptions options{.rank = me, .world = 3, .all_gather = gather.of(me)};
      options.timeout = me == 0 ? 2s : 8s;
      if (me == 1)  // rank 1 takes part in the exchange, then blocks before it connects
        options.all_gather = [&, me](ByteView mine) {
          auto all = gather.of(me)(mine);
          std::this_thread::sleep_for(4s);
          return all;
        };
      statuses[me] = open_transport(kind->name, options).status();
    });
    EXPECT_EQ(statuses[0].code(), Code::kTimeout) << kind->name << ": " << statuses[0].what();
    EXPECT_EQ(statuses[0].peer(), 1) << kind->name;
    EXPECT_EQ(statuses[2].code(), Code::kPeerLost) << kind->name << ": " << statuses[2].what();
    EXPECT_EQ(statuses[2].peer(), 0) << kind->name;
    EXPECT_NE(statuses[2].what().find("it could not connect: rank 1 did not connect within"),
              std::string::npos)
        << kind->name << ": " << statuses[2].what();
  }
}

// If a rank fails to open its transport, the others get its error.
TEST(Transports, failed_open_gives_the_reason) {
  if (!find_transport("ucx")->usable().ok()) GTEST_SKIP() << "this build has no UCX";
  for (const Rank odd : {0, 2}) {
    testing::ThreadGather gather(3);
    Status statuses[3];
    testing::run_ranks(3, [&](Rank me) {
      const ConnectOptions options{.rank = me, .world = 3, .all_gather = gather.of(me), .timeout = 8s};
      statuses[me] =
          open_transport(me == odd ? "ucx:transports=tcp,devices=no_such_device" : "ucx:transports=tcp",
                         options)
              .status();
    });
    for (const Status& s : statuses) {
      EXPECT_EQ(s.code(), Code::kIo) << s.what();
      EXPECT_NE(s.what().find("no_such_device"), std::string::npos) << s.what();
    }
    for (const Rank me : {0, 1, 2})
      if (me != odd) {
        EXPECT_EQ(statuses[me].peer(), odd) << statuses[me].what();
      }
  }
}

TEST(Transports, options_follow_a_colon) {
  EXPECT_EQ(chosen("tcp"), (std::vector<std::string>{"1", "0", "", "", "off"}));
  EXPECT_EQ(chosen("tcp:trust=10.0.0.0/8,fd00::/8,streams=4"),
            (std::vector<std::string>{"4", "0", "10.0.0.0/8,fd00::/8", "", "off"}));
  if (!find_transport("ucx")->usable().ok()) GTEST_SKIP() << "this build has no UCX";
  EXPECT_EQ(chosen("ucx"), (std::vector<std::string>{"", ""}));
  EXPECT_EQ(chosen("ucx:transports=tcp,devices=eth0"), (std::vector<std::string>{"tcp", "eth0"}));
  EXPECT_EQ(chosen("ucx:devices=mlx5_0:1"), (std::vector<std::string>{"", "mlx5_0:1"}));
  EXPECT_EQ(chosen("ucx:transports=tcp,self,sm,devices=eth0,eth1"),
            (std::vector<std::string>{"tcp,self,sm", "eth0,eth1"}));
  EXPECT_EQ(chosen("ucx:transports="), (std::vector<std::string>{"", ""}));
}

TEST(Transports, a_wrong_text_suggests_the_nearest) {
  EXPECT_NE(refusal("uxc").find("did you mean 'ucx'?"), std::string::npos);
  EXPECT_NE(refusal("ucxx").find("did you mean 'ucx'?"), std::string::npos);
  EXPECT_NE(refusal("carrier").find("known: auto, loop, ucx"), std::string::npos);
  EXPECT_NE(refusal("ucx:transport=tcp").find("did you mean 'transports'?"), std::string::npos);
  EXPECT_NE(refusal("ucx:tcp").find("name=value"), std::string::npos);
  EXPECT_NE(refusal("ucx:").find("nothing after the colon"), std::string::npos);
  EXPECT_NE(refusal("ucx:devices=a,devices=b").find("twice"), std::string::npos);
  EXPECT_NE(refusal("loop:devices=a").find("takes no options"), std::string::npos);
}

// reform() checks its transport before it ends the rounds of the old world.
TEST(Transports, wrong_values_can_be_found_without_opening) {
  for (const auto& [text, word] : {std::pair("tcp:streams=0", "streams=0"),
                                   {"tcp:tos=high", "tos=high"},
                                   {"tcp:lossy_card=yes", "lossy_card=yes"},
                                   {"tcp:trust=10.0.0.0/99", "10.0.0.0/99"},
                                   {"tcp:trust=203.0.113.0/24", "no address of this machine"},
                                   {"tcp:tls=nowhere", "nowhere"},
                                   {"tcp:bogus=1", "bogus"},
                                   {"loop", "threads of one process"}}) {
    const Status s = check_transport(text, 0);
    EXPECT_EQ(s.code(), Code::kInvalid) << text;
    EXPECT_NE(s.what().find(word), std::string::npos) << s.what();
  }
  for (const char* text : {"auto", "tcp", "tcp:streams=4,tos=0x28"})
    EXPECT_TRUE(check_transport(text, 0).ok()) << check_transport(text, 0).what();
}

TEST(Transports, auto_reports_the_first_usable_transport) {
  for (const char* text : {"", "auto"}) {
    const Result<TransportChoice> choice = choose_transport(text);
    ASSERT_TRUE(choice.ok()) << choice.status().what();
    EXPECT_NE(choice->kind->open, nullptr);
    EXPECT_NE(choice->why.find("the first usable transport between processes"), std::string::npos);
    EXPECT_EQ(choice->values.size(), choice->kind->options.size());
  }
}

TEST(Transports, loop_is_refused_between_processes) {
  EXPECT_EQ(open_transport("loop", {}).status().code(), Code::kInvalid);
}

TEST(Transports, an_invalid_endpoint_is_refused_before_any_exchange) {
  ConnectOptions o{.world = 2, .all_gather = [](ByteView) -> Result<Blobs> {
                     ADD_FAILURE() << "there must be no exchange";
                     return Status(Code::kInvalid, "");
                   }};
  for (const auto& [rank, world] : {std::pair(2, 2), std::pair(-1, 2), std::pair(0, 0)}) {
    o.rank = rank;
    o.world = world;
    EXPECT_EQ(open_transport("auto", o).status().code(), Code::kInvalid);
  }
  o.rank = 0;
  o.world = 2;
  o.token = Token(kMinTokenBytes - 1, 1);
  EXPECT_EQ(open_transport("auto", o).status().code(), Code::kInvalid);
  EXPECT_EQ(open_transport("auto", {.world = 2}).status().code(), Code::kInvalid);
}

// Without the check, ranks with different transports would report each other's addresses as damaged.
TEST(Transports, a_rank_that_opens_another_transport_is_named) {
  const auto with = [](std::vector<std::uint8_t> other) {
    const AllGather gather = [&](ByteView mine) -> Result<Blobs> {
      return Blobs{{mine.begin(), mine.end()}, other};
    };
    return open_transport("auto", {.world = 2, .all_gather = gather}).status();
  };
  const Status differs = with({4, 't', 'e', 's', 't', 1, 2, 3});
  EXPECT_EQ(differs.code(), Code::kMismatch);
  EXPECT_EQ(differs.peer(), 1);
  EXPECT_NE(differs.what().find("'test'"), std::string::npos) << differs.what();
  std::vector<std::uint8_t> name_alone{3};
  for (const char c : choose_transport("auto")->kind->name)
    name_alone.push_back(static_cast<std::uint8_t>(c));
  for (const auto& damaged : Blobs{{}, {0}, {4, 't', 'e'}, {255, 1, 2}, name_alone}) {
    const Status s = with(damaged);
    EXPECT_EQ(s.code(), Code::kCorrupt) << s.what();
    EXPECT_EQ(s.peer(), 1);
  }
}

}  // namespace
}  // namespace tithe
