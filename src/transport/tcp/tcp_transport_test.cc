// SPDX-License-Identifier: Apache-2.0
// Tests the bytes of each message: rank 0 is a transport, and the test plays rank 1.
#include "transport/tcp/tcp_transport.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

#include <atomic>
#include <map>
#include <thread>

namespace tithe::tcp {
namespace {

using namespace std::chrono_literals;

constexpr Secret kKey{3};

std::vector<std::uint8_t> content(std::size_t bytes) {
  std::vector<std::uint8_t> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
  return out;
}

class TcpProtocol : public ::testing::Test {
 protected:
  void open(const Options& options) {
    rank0_ = std::make_unique<TcpTransport>(0, 2, options, 30s);
    mine_.assign(1, {asio::ip::address_v4::loopback(), 0});
    ASSERT_TRUE(rank0_->listen(mine_).ok());
    if (at_[0].port() == 0) {
      ASSERT_TRUE(listener_.listen(at_).ok());
    }
    listener_.open([this](const ConnectRequest& request, const std::shared_ptr<Wire>& wire) {
      (request.purpose == Purpose::kControl ? control_ : data_[request.stream]) = wire;
      return true;
    });
    std::atomic<bool> over = false;
    std::thread hand([&] {
      while (!over) context_.run_one_for(1ms);
    });
    const Status s = rank0_->connect(kKey, {{}, at_}, 20s, {});
    over = true;
    hand.join();
    ASSERT_TRUE(s.ok()) << s.what();
    ASSERT_NE(control_, nullptr);
  }
  void TearDown() override { close(); }
  void close() {
    if (control_) control_->close();
    control_.reset();
    rank0_.reset();
  }
  // Runs until `done` returns true, with a limit that only a failing test reaches.
  template <typename Done>
  void run(Done done) {
    const auto deadline = Clock::now() + 20s;
    while (!done() && Clock::now() < deadline) step();
  }
  void step() {
    Completion c;
    if (rank0_->poll({&c, 1}, 1ms) > 0) done_.push_back(c);
    context_.run_one_for(1ms);
    read_into(control_, received_);
    for (auto& [stream, wire] : data_) read_into(wire, bodies_[stream]);
  }
  void end_operations() {
    for (int i = 0; i < 30; ++i) step();
  }
  static void read_into(const std::shared_ptr<Wire>& wire, std::vector<std::uint8_t>& out) {
    std::uint8_t some[65536];
    for (;;) {
      const std::ptrdiff_t n = wire->read(some);
      if (n <= 0) return;
      out.insert(out.end(), some, some + n);
    }
  }
  void say(const Record& record, ByteView behind = {}) {
    std::vector<std::uint8_t> bytes;
    append_record(record, behind, {}, last_sent_checksum_, bytes);
    ASSERT_EQ(control_->write(bytes), static_cast<std::ptrdiff_t>(bytes.size()));
  }
  // The next record, and the bytes that follow it.
  std::pair<Record, std::vector<std::uint8_t>> next_record() {
    const auto record = read_record(ByteView(received_).first(kRecordBytes));
    EXPECT_TRUE(record.has_value());
    const auto begin = received_.begin() + kRecordBytes + kChecksumBytes;
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes_behind(*record));
    const std::vector<std::uint8_t> behind(begin, end);
    received_.erase(received_.begin(), behind.empty() ? end : end + kChecksumBytes);
    return {*record, behind};
  }

  asio::io_context context_{1};
  Job job_{.rank = 1, .world = 2, .key = kKey};
  Listener listener_{context_, job_};
  std::vector<Endpoint> at_{{asio::ip::address_v4::loopback(), 0}};
  std::vector<Endpoint> mine_{{asio::ip::address_v4::loopback(), 0}};
  std::shared_ptr<Wire> control_;
  std::map<int, std::shared_ptr<Wire>> data_;
  std::vector<std::uint8_t> received_;
  RecordChecksum last_sent_checksum_ = first_checksum(kKey, 1, 0);
  std::map<int, std::vector<std::uint8_t>> bodies_;
  std::vector<Completion> done_;
  std::unique_ptr<TcpTransport> rank0_;
};

// A body, which a network card may change, consists of floats only, in whole groups of 8.
TEST_F(TcpProtocol, payloads_and_headers_use_separate_streams) {
  open({.streams = 3, .tos = 0x28});
  std::uint64_t granted = 0;
  for (const std::size_t floats : {2000U, 2003U, 300'000U}) {
    received_.clear();
    bodies_.clear();
    done_.clear();
    const auto frame = content(kFrameHeaderBytes + 4 * floats + kFrameTrailerBytes);
    ASSERT_TRUE(rank0_->send(1, 5, frame, 1).ok());
    end_operations();
    EXPECT_TRUE(bodies_[0].empty() && bodies_[1].empty() && bodies_[2].empty()) << "no receive was granted";
    const auto [head, edge] = next_record();
    EXPECT_EQ(head.kind, Kind::kLong);
    EXPECT_EQ(head.n, frame.size());
    EXPECT_TRUE(received_.empty());
    const std::size_t body = 4 * floats / 32 * 32;
    EXPECT_EQ(edge.size(), frame.size() - body);
    say({.kind = Kind::kGrant, .about = 5, .n = ++granted});
    run([&] { return bodies_[0].size() + bodies_[1].size() + bodies_[2].size() == body && !done_.empty(); });
    ASSERT_EQ(done_.size(), 1U);
    EXPECT_TRUE(done_[0].status.ok()) << done_[0].status.what();
    std::vector<std::uint8_t> whole(edge.begin(), edge.begin() + kFrameHeaderBytes);
    std::map<int, std::size_t> taken;
    while (!received_.empty()) {
      const Record piece = next_record().first;
      ASSERT_EQ(piece.kind, Kind::kPiece);
      EXPECT_EQ(piece.n % 32, 0U);
      const auto& from = bodies_[piece.stream];
      std::size_t& at = taken[piece.stream];
      ASSERT_LE(at + piece.n, from.size());
      whole.insert(whole.end(), from.begin() + static_cast<std::ptrdiff_t>(at),
                   from.begin() + static_cast<std::ptrdiff_t>(at + piece.n));
      at += piece.n;
    }
    whole.insert(whole.end(), edge.begin() + kFrameHeaderBytes, edge.end());
    EXPECT_EQ(whole, frame);
  }
  int marked = 0;
  for (int fd = 3; fd < 1000; ++fd) {
    int tos = 0;
    socklen_t size = sizeof tos;
    marked += getsockopt(fd, IPPROTO_IP, IP_TOS, &tos, &size) == 0 && tos == 0x28;
  }
  EXPECT_EQ(marked, 3) << "only the data connections";
}

// Sequences of records after which the peer is distrusted: the last record of each is invalid at its place.
using Records = std::vector<Record>;
class TcpMalformed : public TcpProtocol, public ::testing::WithParamInterface<Records> {};

TEST_P(TcpMalformed, malformed_peer_is_disconnected_and_named) {
  open({});
  for (const Record& record : GetParam()) say(record);
  run([&] { return !rank0_->peer_status(1).ok(); });
  EXPECT_EQ(rank0_->peer_status(1).peer(), 1);
  EXPECT_EQ(rank0_->peer_status(1).code(), Code::kCorrupt) << rank0_->peer_status(1).what();
}

INSTANTIATE_TEST_SUITE_P(records, TcpMalformed,
                         ::testing::Values(Records{{.kind = static_cast<Kind>(99)}},
                                           Records{{.kind = Kind::kPiece, .about = 0, .n = 32}},
                                           Records{{.kind = Kind::kEnd, .about = 7}},
                                           Records{{.kind = Kind::kAnswer, .n = 1}}));

// Every bit of a record and of the bytes after it. Without checksums, some flipped bits would move a message to a
// channel
// without a receive, or make a rank wait for bytes that never come.
TEST_F(TcpProtocol, a_flipped_bit_on_the_control_connection_fails_at_once) {
  const auto message = content(40);
  std::vector<std::uint8_t> whole;
  RecordChecksum last = first_checksum(kKey, 1, 0);
  append_record({.kind = Kind::kWhole, .about = 2, .n = message.size()}, message, {}, last, whole);
  for (std::size_t bit = 0; bit < 8 * whole.size(); bit += 3) {
    close();
    done_.clear();
    open({});
    std::vector<std::uint8_t> in(64);
    ASSERT_TRUE(rank0_->recv(1, 2, in, 1).ok());
    std::vector<std::uint8_t> changed = whole;
    changed[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    ASSERT_GT(control_->write(changed), 0);
    run([&] { return !done_.empty(); });
    ASSERT_EQ(done_.size(), 1U) << bit;
    EXPECT_EQ(done_[0].status.code(), Code::kCorrupt) << bit << ": " << done_[0].status.what();
    EXPECT_EQ(done_[0].status.peer(), 1) << bit;
    received_.clear();  // rank 0 still sends small messages, such as its reason
    ASSERT_TRUE(rank0_->send(1, 0, message, 2).ok());
    run([&] { return received_.size() >= whole.size(); });
    EXPECT_EQ(next_record().second, message) << bit;
  }
}

// A piece that exceeds its message is not written anywhere.
TEST_F(TcpProtocol, a_piece_past_the_end_of_its_message_is_refused) {
  open({});
  std::vector<std::uint8_t> in(6000, 0xAA);
  ASSERT_TRUE(rank0_->recv(1, 2, Bytes(in).first(5000), 1).ok());
  const std::size_t bytes = 5000;
  say({.kind = Kind::kLong, .about = 2, .n = bytes}, std::vector<std::uint8_t>(bytes - body_bytes(bytes), 1));
  say({.kind = Kind::kPiece, .about = 0, .n = body_bytes(bytes) + 32});
  run([&] { return !done_.empty(); });
  ASSERT_FALSE(done_.empty());
  EXPECT_EQ(done_[0].status.code(), Code::kCorrupt) << done_[0].status.what();
  EXPECT_EQ(std::vector<std::uint8_t>(1000, 0xAA), std::vector<std::uint8_t>(in.end() - 1000, in.end()));
}

// Messages without a receive are stored, up to a limit.
TEST_F(TcpProtocol, excess_unreceived_messages_name_the_sender) {
  open({});
  const std::vector<std::uint8_t> bytes(kWholeBytes, 7);
  std::vector<std::uint8_t> message;
  std::size_t sent_bytes = 0;
  std::size_t at = 0;
  run([&] {
    for (std::ptrdiff_t n = 1; n > 0 && sent_bytes < 2 * kMaxUnread;) {
      if (at == message.size()) {
        message.clear();
        at = 0;
        append_record({.kind = Kind::kWhole, .about = 3, .n = kWholeBytes}, bytes, {}, last_sent_checksum_,
                      message);
      }
      n = control_->write(ByteView(message).subspan(at));
      at += n > 0 ? static_cast<std::size_t>(n) : 0;
      sent_bytes += n > 0 ? static_cast<std::size_t>(n) : 0;
    }
    return !rank0_->peer_status(1).ok();
  });
  EXPECT_EQ(rank0_->peer_status(1).code(), Code::kCorrupt);
  EXPECT_NE(rank0_->peer_status(1).what().find("posted no receive"), std::string::npos)
      << rank0_->peer_status(1).what();
  EXPECT_GT(sent_bytes, kMaxUnread / 2) << "a valid amount of messages is stored";
}

TEST_F(TcpProtocol, ungranted_payloads_are_bounded) {
  open({});
  const std::size_t bytes = 2 * kMaxUnread;
  say({.kind = Kind::kLong, .about = 2, .n = bytes}, std::vector<std::uint8_t>(bytes - body_bytes(bytes), 1));
  say({.kind = Kind::kPiece, .about = 0, .n = 32});
  std::optional<std::pair<Status, std::shared_ptr<Wire>>> data;
  Connector call(context_, job_, {.purpose = Purpose::kData, .from = 1, .to = 0}, mine_,
                 [&](Status s, std::shared_ptr<Wire> wire) { data.emplace(std::move(s), std::move(wire)); });
  call.begin();
  run([&] { return !rank0_->peer_status(1).ok(); });
  EXPECT_EQ(rank0_->peer_status(1).code(), Code::kCorrupt) << rank0_->peer_status(1).what();
}

// The end of a killed process is detected at once, whatever the timeout.
TEST_F(TcpProtocol, a_closed_connection_is_reported_at_once) {
  open({});
  std::vector<std::uint8_t> in(10);
  ASSERT_TRUE(rank0_->recv(1, 2, in, 1).ok());
  control_->close();
  Completion c;
  ASSERT_EQ(rank0_->poll({&c, 1}, 20s), 1U);
  EXPECT_EQ(c.status.code(), Code::kPeerLost);
  EXPECT_EQ(c.status.peer(), 1);
}

}  // namespace
}  // namespace tithe::tcp
