// SPDX-License-Identifier: Apache-2.0
// One member of an elastic job, for `make chaos`: a process that does rounds, rejoins with the survivors, and prints
// its sums of values and residuals, so that members.py can check the ledger over all members.
//
//   chaos_member STRATEGY CODEC TRANSPORT TIMEOUT_MS VALUES ROUNDS GATE BOARD NAME MEMBERS
//
// MEMBERS: comma-separated names, or - for a member that joins later. GATE is none, or a point of round 2, of the
// first rendezvous or of the first reform; there the process prints "gate" and reads a line:
//   open, meet         before it joins; when all have joined, before they connect
//   between, commit    before it passes its tensors; before it commits
//   propose            while rank 0's proposal is pending
//   encode, exchange   without waiting: while it encodes; while its frames are in transit
//   reform, connect    when it leaves the old group; when all have joined, before they connect
// Output: "opened EPOCH", "step K EPOCH MEMBERS put PUT had OWED kept OWES result RESULT hash HASH lost LOST",
// "reforms", "epoch E MEMBERS", "trouble CODE PEER text", "done HASH".
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <set>
#include <string>
#include <thread>

#include "tithe/connect.h"
#include "tithe/rejoin.h"
#include "tithe/session.h"

namespace tithe {
namespace {

constexpr int kGateRound = 2;
constexpr auto kRejoinTimeout = std::chrono::milliseconds(10'000);

void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

using Names = std::vector<std::string>;

Names split(const std::string& text) {
  Names out;
  for (std::size_t at = 0; at <= text.size() && text != "-";) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string joined(const Names& names, char between = ',') {
  std::string out;
  for (const std::string& n : names) out += (out.empty() ? std::string() : std::string(1, between)) + n;
  return out;
}

std::uint64_t hash_of(std::uint64_t h, const void* data, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) h = (h ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211ULL;
  return h;
}

// A checksum that detects exchanged values. Values are multiples of a quarter, so it is exact.
double book(const std::vector<float>& v) {
  double sum = 0;
  for (std::size_t i = 0; i < v.size(); ++i)
    sum += static_cast<double>(v[i]) * static_cast<double>(1 + i % 61);
  return sum;
}

struct Task {
  SessionOptions options;
  std::string transport;
  std::size_t values = 0;
  int rounds = 0;
  std::string gate, name;
};

class Member {
 public:
  Member(Task task, Board board, Names members)
      : task_(std::move(task)),
        board_(std::move(board)),
        members_(std::move(members)),
        weights_(task_.values) {}

  Status run() {
    TITHE_TRY(open());
    say(fmt::format("opened {}", epoch_));
    while (step_ < task_.rounds) {
      Status s = round();
      if (s.ok() && step_ < task_.rounds) {
        const Result<bool> waits = new_ranks_waiting(board_, epoch_ + 1, members_);
        if (!waits.ok()) return waits.status();
        if (!*waits) continue;
        s = Status(Code::kCancelled, "somebody waits");
      }
      for (int tries = 0; !s.ok(); ++tries) {
        say(fmt::format("reforms {} {} {}", name(s.code()), s.peer(), s.what()));
        const Status again = reform();
        if (!again.ok() && (tries == 5 || again.what().find("without this rank") != std::string::npos))
          return again;
        s = again;
      }
    }
    say(fmt::format("done {:016x}", hash_of(1, weights_.data(), 4 * weights_.size())));
    return {};
  }

 private:
  void gate(const char* where, bool waits = true) {
    if (task_.gate != where) return;
    task_.gate.clear();
    say("gate");
    if (waits) read_line();
  }
  static void read_line() {
    std::string line;
    std::getline(std::cin, line);
  }

  // Names of the members that the session reports as lost.
  Names lost(std::uint64_t epoch) const {
    Names out;
    if (session_ != nullptr && session_->stats().epoch == epoch)
      for (const Rank r : session_->missed()) out.push_back(group_[static_cast<std::size_t>(r)]);
    return out;
  }

  Result<RejoinResult> rejoin_for(std::uint64_t epoch) {
    Result<RejoinResult> met = rejoin({.board = board_,
                                       .me = task_.name,
                                       .epoch = epoch,
                                       .before = members_,
                                       .missed = {missed_.begin(), missed_.end()},
                                       .lost = [this, epoch] { return lost(epoch - 1); },
                                       .taken = group_,
                                       .timeout = kRejoinTimeout});
    if (met.ok()) {
      members_ = met->members;
      epoch_ = met->epoch;
    }
    return met;
  }

  Result<std::unique_ptr<Transport>> connect(const RejoinResult& met, const char* where) {
    Result<TokenGiven> token = token_from_environment();
    if (!token.ok()) return token.status();
    Result<std::unique_ptr<Transport>> transport = open_transport(
        task_.transport, {.rank = met.rank,
                          .world = static_cast<int>(met.members.size()),
                          .all_gather =
                              [&](ByteView mine) {
                                auto all = met.all_gather(mine);
                                if (all.ok()) gate(where);
                                return all;
                              },
                          .token = token->token,
                          .timeout = session_ == nullptr ? kRejoinTimeout : task_.options.timeout,
                          .silence = task_.options.timeout});
    if (!transport.ok() && transport.status().peer() >= 0)
      missed_.insert(members_[static_cast<std::size_t>(transport.status().peer())]);
    return transport;
  }

  Status open() {
    const bool came_later = members_.empty();
    gate("open");
    const Result<RejoinResult> met = rejoin_for(0);
    if (!met.ok()) return met.status();
    Result<std::unique_ptr<Transport>> transport = connect(*met, "meet");
    if (!transport.ok()) return transport.status();
    task_.options.members = group_ = members_;
    task_.options.epoch = epoch_;
    Result<std::unique_ptr<Session>> opened = Session::open(std::move(*transport), task_.options);
    if (!opened.ok()) return opened.status();
    session_ = std::move(*opened);
    if (!came_later || epoch_ == 0) return {};
    const auto await = [&](const char* what) -> Result<Board::Text> {
      for (int k = 0; k < 2000; ++k) {
        auto there = board_.get(fmt::format("{}.{}", epoch_, what));
        if (!there.ok()) return there.status();
        if (*there) return std::move(**there);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      return Status(Code::kTimeout, fmt::format("nobody gave '{}'", what));
    };
    const auto given = await("given"), state = await("state");
    if (!given.ok()) return given.status();
    if (!state.ok()) return state.status();
    std::memcpy(&step_, given->data(), sizeof step_);
    std::memcpy(weights_.data(), given->data() + sizeof step_, 4 * weights_.size());
    const ByteView common(*state);
    return session_->restore(std::span(&common, 1));
  }

  Status reform() {
    const Status failure = session_->present();
    if (failure.code() == Code::kMismatch && failure.peer() == session_->rank()) return failure;
    for (std::string& name : lost(epoch_)) missed_.insert(std::move(name));
    if (failure.peer() >= 0) missed_.insert(group_[static_cast<std::size_t>(failure.peer())]);
    const std::string missed = joined({missed_.begin(), missed_.end()}, '\n');
    TITHE_TRY(board_
                  .put_first(fmt::format("{}.come.{}", epoch_ + 1, task_.name),
                             {reinterpret_cast<const std::uint8_t*>(missed.data()), missed.size()})
                  .status());
    session_->cancel();
    gate("reform");
    const Result<RejoinResult> met = rejoin_for(epoch_ + 1);
    if (!met.ok()) return met.status();
    if (met->joined && met->rank == 0) {
      const auto state = session_->common_state();
      if (!state.ok()) return state.status();
      std::vector<std::uint8_t> given(sizeof step_ + 4 * weights_.size());
      std::memcpy(given.data(), &step_, sizeof step_);
      std::memcpy(given.data() + sizeof step_, weights_.data(), 4 * weights_.size());
      TITHE_TRY(board_.put_first(fmt::format("{}.given", epoch_), given).status());
      TITHE_TRY(board_.put_first(fmt::format("{}.state", epoch_), *state).status());
    }
    Result<std::unique_ptr<Transport>> transport = connect(*met, "connect");
    if (!transport.ok()) return transport.status();
    TITHE_TRY(session_->reform(std::move(*transport), members_, epoch_));
    group_ = members_;
    missed_.clear();
    say(fmt::format("epoch {} {}", epoch_, joined(members_)));
    return {};
  }

  Status round() {
    const bool here = step_ >= kGateRound;
    if (here) gate("between");
    std::vector<float> v(task_.values), before(task_.values), after(task_.values);
    std::uint64_t draw = hash_of(static_cast<std::uint64_t>(step_) + 7, task_.name.data(), task_.name.size());
    for (float& x : v) {
      draw = draw * 6364136223846793005ULL + 1442695040888963407ULL;
      x = static_cast<float>(static_cast<int>(draw >> 40 & 63) - 32) / 4;
    }
    if (!session_->residual("w", before).ok()) std::fill(before.begin(), before.end(), 0.0F);
    const double put = book(v);
    if (task_.gate == "propose" && step_ == kGateRound && session_->rank() == 0)
      (void)session_->propose(R"({"*": "topk:ratio=0.2"})");
    if (here && task_.gate == "exchange") {
      say("ready");
      read_line();
    }
    if (here) gate("encode", false);
    const Tensor t{.key = "w", .data = v.data(), .n = v.size()};
    const Result<Ticket> ticket = session_->sync({&t, 1});
    if (!ticket.ok()) return ticket.status();
    if (here) gate("exchange", false);
    if (here) gate("propose");
    TITHE_TRY(session_->wait(*ticket));
    if (here) gate("commit");
    TITHE_TRY(session_->commit());
    TITHE_TRY(session_->residual("w", after));
    for (std::size_t i = 0; i < v.size(); ++i) weights_[i] += v[i];
    say(fmt::format("step {} {} {} put {:a} had {:a} kept {:a} result {:a} hash {:016x} lost {}", step_,
                    epoch_, joined(group_), put, book(before), book(after), book(v),
                    hash_of(1, v.data(), 4 * v.size()), session_->stats().ranks_lost));
    ++step_;
    return {};
  }

  Task task_;
  Board board_;
  Names members_, group_;  // of the latest epoch; of the session
  std::set<std::string> missed_;
  std::vector<float> weights_;
  std::uint64_t epoch_ = 0;
  int step_ = 0;
  std::unique_ptr<Session> session_;
};

}  // namespace
}  // namespace tithe

int main(int argc, char** argv) {
  using namespace tithe;
  if (argc != 11) {
    std::fputs(
        "usage: chaos_member STRATEGY CODEC TRANSPORT TIMEOUT_MS VALUES ROUNDS GATE BOARD NAME MEMBERS\n",
        stderr);
    return 2;
  }
  Task task;
  task.options = {.codec = argv[2],
                  .strategy = argv[1],
                  .average = false,
                  .min_values = 0,
                  .timeout = std::chrono::milliseconds(std::atoi(argv[4]))};
  task.transport = argv[3];
  task.values = static_cast<std::size_t>(std::atoll(argv[5]));
  task.rounds = std::atoi(argv[6]);
  task.gate = argv[7];
  task.name = argv[9];
  const Status s = Member(task, board_in(argv[8]), split(argv[10])).run();
  if (!s.ok()) say(fmt::format("trouble {} {} {}", name(s.code()), s.peer(), s.what()));
  return s.ok() ? 0 : 1;
}
