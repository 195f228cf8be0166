// SPDX-License-Identifier: Apache-2.0
#include "transport/peer_info.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/bytes.h"

namespace tithe {
namespace {

const Token kToken(32, 7);
constexpr TransportVersion kTransportVersion{.magic = 0x54534554, .name = "UCX", .major = 1, .minor = 13};
const PeerInfo kRank2{.rank = 2, .world = 4, .error = {}, .address = {1, 2, 3}, .link_rate = 1'250'000'000};

// Recomputes the checksum and the tag.
void seal_again(std::vector<std::uint8_t>& blob, const Token& token) {
  const std::size_t body = blob.size() - 8 - kSecretBytes;
  wire::put(&blob[body], static_cast<std::uint64_t>(XXH3_64bits(blob.data(), body)));
  const Secret tag = derive(token, "tithe hello", {ByteView(blob).first(body + 8)});
  std::copy(tag.begin(), tag.end(), blob.begin() + static_cast<std::ptrdiff_t>(body + 8));
}

TEST(PeerInfo, round_trips) {
  const auto blob = write_peer_info(kRank2, kToken, kTransportVersion);
  const auto heard = read_peer_info(blob, 2, 4, kToken, kTransportVersion);
  ASSERT_TRUE(heard.ok()) << heard.status().what();
  EXPECT_EQ(std::vector<std::uint8_t>(heard->address.begin(), heard->address.end()), kRank2.address);
  EXPECT_EQ(heard->process.system, own_process_id().system);
  EXPECT_EQ(heard->process.pid, static_cast<std::uint32_t>(getpid()));
  EXPECT_EQ(heard->process.host, own_process_id().host);
  EXPECT_EQ(heard->link_rate, kRank2.link_rate);
}

TEST(PeerInfo, names_the_rank_that_differs) {
  struct Change {
    std::size_t byte;
    Code code;
    const char* text;
  };
  // magic, peer info version, frame version, world, rank, UCX major, UCX minor
  for (const Change& c : {Change{0, Code::kCorrupt, "address"}, Change{4, Code::kMismatch, "version"},
                          Change{6, Code::kMismatch, "version"}, Change{8, Code::kMismatch, "world size"},
                          Change{12, Code::kMismatch, "identifies itself"},
                          Change{16, Code::kMismatch, "UCX"}, Change{20, Code::kMismatch, "UCX"}}) {
    auto blob = write_peer_info(kRank2, kToken, kTransportVersion);
    blob[c.byte] ^= 0x10;
    seal_again(blob, kToken);
    const Status s = read_peer_info(blob, 2, 4, kToken, kTransportVersion).status();
    EXPECT_EQ(s.code(), c.code) << "byte " << c.byte << ": " << s.what();
    EXPECT_EQ(s.peer(), 2);
    EXPECT_NE(s.what().find("rank 2"), std::string::npos);
    EXPECT_NE(s.what().find(c.text), std::string::npos) << s.what();
  }
}

TEST(PeerInfo, truncated_blobs_are_refused) {
  const auto blob = write_peer_info(kRank2, kToken, kTransportVersion);
  for (std::size_t n = 0; n <= blob.size() - kRank2.address.size(); ++n)
    EXPECT_FALSE(read_peer_info(std::span(blob).first(n), 2, 4, kToken, kTransportVersion).ok()) << n;
}

// UCX trusts an address: a damaged one would end the process inside ucp_ep_create().
TEST(PeerInfo, a_damaged_address_never_reaches_ucx) {
  const auto blob = write_peer_info(kRank2, kToken, kTransportVersion);
  for (std::size_t byte = 0; byte < blob.size(); ++byte) {
    auto damaged = blob;
    damaged[byte] ^= 0x04;
    const Status s = read_peer_info(damaged, 2, 4, kToken, kTransportVersion).status();
    EXPECT_FALSE(s.ok()) << "byte " << byte;
    EXPECT_EQ(s.peer(), 2) << "byte " << byte;
  }
}

TEST(PeerInfo, a_hostile_address_never_reaches_ucx) {
  const Status s = read_peer_info(write_peer_info(kRank2, Token(32, 8), kTransportVersion), 2, 4, kToken,
                                  kTransportVersion)
                       .status();
  EXPECT_EQ(s.code(), Code::kMismatch);
  EXPECT_NE(s.what().find("TITHE_TOKEN"), std::string::npos) << s.what();
}

TEST(PeerInfo, peer_texts_are_made_printable) {
  auto blob = write_peer_info({.rank = 1, .world = 2, .error = {Code::kIo, "abcdefgh"}, .address = {}},
                              kToken, kTransportVersion);
  const std::string odd = "\x1b[2J\xff\n x";
  std::copy(odd.begin(), odd.end(), blob.end() - 40 - 8);
  seal_again(blob, kToken);
  EXPECT_EQ(read_peer_info(blob, 1, 2, kToken, kTransportVersion).status().what(), "rank 1: ?[2J?  x");
}

TEST(PeerInfo, a_job_key_is_unique_to_the_job) {
  const auto heard = [](std::uint8_t a, std::uint8_t b) {
    std::vector<ReceivedPeerInfo> all(2);
    all[0].nonce.fill(a);
    all[1].nonce.fill(b);
    return all;
  };
  EXPECT_EQ(session_key(kToken, heard(1, 2)), session_key(kToken, heard(1, 2)));
  EXPECT_NE(session_key(kToken, heard(1, 2)), session_key(kToken, heard(1, 3)));
  EXPECT_NE(session_key(kToken, heard(1, 2)), session_key(Token(32, 8), heard(1, 2)));
}

TEST(PeerInfo, includes_the_peers_error) {
  const Status s =
      read_peer_info(
          write_peer_info({.rank = 1, .world = 2, .error = {Code::kIo, "no such device"}, .address = {}},
                          kToken, kTransportVersion),
          1, 2, kToken, kTransportVersion)
          .status();
  EXPECT_EQ(s.code(), Code::kIo);
  EXPECT_EQ(s.peer(), 1);
  EXPECT_NE(s.what().find("no such device"), std::string::npos);
}

}  // namespace
}  // namespace tithe
