// SPDX-License-Identifier: Apache-2.0
#include "chaos/members.h"

#include <cstring>
#include <set>

#include "support/law_cases.h"
#include "tithe/rejoin.h"

namespace tithe::chaos {
namespace {

using std::chrono::milliseconds;
using testing::at;
using testing::Values;
using Names = std::vector<std::string>;
using Texts = std::map<std::string, Board::Text>;

constexpr milliseconds kPatience{8000};  // of a rejoin
constexpr int kTries = 8;                // reforms without a round between

// A board as different processes see it. If the network is split, each half has a copy of the board at the time of the
// split.
struct Boards {
  Texts whole;
  std::map<int, Texts> halves;  // by half
};

class Member {
 public:
  Member(const Job& job, Network& net, Boards& boards, MemberOutcome& outcome, int me)
      : job_(job), net_(net), boards_(boards), outcome_(outcome), me_(me) {}

  void live() {
    const MemberSpec& mine = job_.processes[static_cast<std::size_t>(me_)];
    if (mine.joins_at.count() > 0) net_.sleep(me_, mine.joins_at);
    if (mine.joins_at.count() < 0)
      for (std::size_t k = 0; k < job_.begin; ++k) members_.push_back(job_.processes[k].name);
    for (life_ = 0; life_ < 3; ++life_) {
      outcome_.status = take_part();
      session_.reset();
      if (outcome_.status.ok() || !mine.returns || net_.dead(me_)) break;
      members_.clear();
      missed_.clear();
      group_.clear();
      epoch_ = session_epoch_ = 0;
      step_ = 0;
      sums_.clear();
    }
    outcome_.dead = net_.dead(me_);
    outcome_.finished = outcome_.status.ok() && !outcome_.dead;
    outcome_.sums = sums_;
    outcome_.step = step_;
  }

 private:
  // ---- The board

  // The half whose copy this process sees; -1: the common board.
  int half() const {
    for (std::size_t k = 0; k < job_.faults.size(); ++k)
      if (const Fault& f = job_.faults[k]; f.kind == FaultKind::kHalves && net_.struck(k))
        return static_cast<int>(f.draw >> me_ & 1);
    return -1;
  }
  bool reaches_board() const {
    for (std::size_t k = 0; k < job_.faults.size(); ++k) {
      const Fault& f = job_.faults[k];
      if (!net_.struck(k) || (f.heals && net_.now() >= net_.struck_at(k) + f.lasts)) continue;
      if (f.kind == FaultKind::kApart && f.who == me_) return false;
      if (f.kind == FaultKind::kHalves && !job_.board_forks && ((f.draw >> me_ ^ f.draw) & 1) != 0)
        return false;
    }
    return true;
  }
  Result<Texts*> board() {
    net_.count(me_, Point::kBoard);
    if (++looks_ % 4 == 0) net_.sleep(me_, job_.board_ms / 2);
    if (net_.dead(me_) || net_.hung() || !reaches_board())
      return Status(Code::kIo, "chaos: the board is out of reach");
    const int mine = half();
    if (mine < 0 || !job_.board_forks) return &boards_.whole;
    return &boards_.halves.try_emplace(mine, boards_.whole).first->second;
  }
  Result<Board::Text> put_first(const std::string& key, ByteView value) {
    const Result<Texts*> texts = board();
    if (!texts.ok()) return texts.status();
    return (*texts)->try_emplace(key, value.begin(), value.end()).first->second;
  }
  Result<std::optional<Board::Text>> get(const std::string& key) {
    const Result<Texts*> texts = board();
    if (!texts.ok()) return texts.status();
    const auto there = (*texts)->find(key);
    return there == (*texts)->end() ? std::optional<Board::Text>() : there->second;
  }
  Board seen() {
    return {.put_first = [this](const std::string& k, ByteView v) { return put_first(k, v); },
            .get = [this](const std::string& k) { return get(k); }};
  }
  Result<Board::Text> await(const std::string& key) {
    for (const Time until = net_.now() + kPatience; net_.now() < until; net_.sleep(me_, milliseconds(10))) {
      Result<std::optional<Board::Text>> there = get(key);
      if (!there.ok()) return there.status();
      if (*there) return std::move(**there);
    }
    return Status(Code::kTimeout, "who was to give it has not put '" + key + "' on the board");
  }
  std::string key(std::uint64_t epoch, const std::string& what) const {
    return std::to_string(epoch) + "." + what;
  }

  // ---- As tithe.Membership does

  Names session_names() const {
    Names out;
    for (const int process : group_) out.push_back(job_.processes[static_cast<std::size_t>(process)].name);
    return out;
  }
  Names lost_by_now() const {
    Names out;
    for (const Rank r : session_->missed()) out.push_back(session_names()[at(r)]);
    return out;
  }

  Result<RejoinResult> rejoin_for(std::uint64_t epoch) {
    Result<RejoinResult> met = rejoin(
        {.board = seen(),
         .me = name(),
         .epoch = epoch,
         .before = members_,
         .missed = {missed_.begin(), missed_.end()},
         .lost = [this, epoch] { return session_epoch_ + 1 == epoch ? lost_by_now() : Names{}; },
         .taken = session_names(),
         .min_world = job_.min_world,
         .max_world = job_.max_world,
         .timeout = kPatience,
         .interrupted = [this] { return net_.dead(me_) || net_.hung(); },
         .now = [this] { return net_.now(); },
         .sleep = [this](milliseconds t) { net_.sleep(me_, std::max<Nanoseconds>(t, job_.board_ms)); }});
    if (met.ok()) {
      members_ = met->members;
      epoch_ = met->epoch;
    }
    return met;
  }

  Result<std::unique_ptr<Transport>> meet(const RejoinResult& met) {
    const auto mine = static_cast<std::uint8_t>(me_);
    const auto all = met.all_gather({&mine, 1});
    if (!all.ok()) return all.status();
    processes_.clear();
    for (const Board::Text& process : *all) processes_.push_back(process[0]);
    if (processes_[at(met.rank)] != me_)
      return Status(Code::kCorrupt,
                    "the exchange returned another address blob for this rank than this rank passed");
    return net_.open(met.epoch, processes_, met.rank);
  }

  Status open() {
    const bool came_later = members_.empty();
    const Result<RejoinResult> met = rejoin_for(0);
    if (!met.ok()) return met.status();
    Result<std::unique_ptr<Transport>> transport = meet(*met);
    if (!transport.ok()) return transport.status();
    Result<std::unique_ptr<Session>> opened =
        Session::open(std::move(*transport), job_.options(members_, epoch_));
    if (!opened.ok()) return opened.status();
    session_ = std::move(*opened);
    outcome_.opened = true;
    group_ = processes_;
    session_epoch_ = epoch_;
    lost_ = 0;
    if (!came_later || epoch_ == 0) return {};
    const auto given = await(key(epoch_, "given")), state = await(key(epoch_, "state"));
    if (!given.ok()) return given.status();
    if (!state.ok()) return state.status();
    take(*given);
    const ByteView common(*state);
    return session_->restore(std::span(&common, 1));
  }

  Status reform() {
    const int which = reforms_++;
    strike(which, kJoins);
    const Status failure = session_->present();
    if (failure.code() == Code::kMismatch && failure.peer() == session_->rank())
      return {Code::kMismatch, failure.what() + "; it may come back as one that is new", failure.peer()};
    if (session_epoch_ == epoch_)
      for (std::string& name : lost_by_now()) missed_.insert(std::move(name));
    if (failure.peer() >= 0) missed_.insert(session_names()[at(failure.peer())]);
    std::string missed;
    for (const std::string& name : missed_) missed += (missed.empty() ? "" : "\n") + name;
    const Result<Board::Text> came =
        put_first(key(epoch_ + 1, "come." + name()),
                  {reinterpret_cast<const std::uint8_t*>(missed.data()), missed.size()});
    if (!came.ok()) return came.status();
    session_->cancel();
    strike(which, kCancelled);
    const Result<RejoinResult> met = rejoin_for(epoch_ + 1);
    if (!met.ok()) return met.status();
    strike(which, kAgreed);
    if (met->joined && met->rank == 0) {
      const auto state = session_->common_state();
      if (!state.ok()) return state.status();
      TITHE_TRY(put_first(key(epoch_, "given"), give()).status());
      TITHE_TRY(put_first(key(epoch_, "state"), *state).status());
    }
    Result<std::unique_ptr<Transport>> transport = meet(*met);
    if (!transport.ok()) {
      if (const Rank late = transport.status().peer(); late >= 0) missed_.insert(members_[at(late)]);
      return transport.status();
    }
    strike(which, kOpened);
    TITHE_TRY(session_->reform(std::move(*transport), members_, epoch_));
    for (const int was : group_) lost_ += std::ranges::find(processes_, was) == processes_.end() ? 1 : 0;
    group_ = processes_;
    session_epoch_ = epoch_;
    missed_.clear();
    strike(which, kReformed);
    return {};
  }

  // Parameters and the number of the step.
  Board::Text give() const {
    Board::Text out(1, static_cast<std::uint8_t>(step_));
    for (const std::vector<float>& v : sums_) {
      const auto* p = reinterpret_cast<const std::uint8_t*>(v.data());
      out.insert(out.end(), p, p + 4 * v.size());
    }
    return out;
  }
  void take(const Board::Text& given) {
    step_ = given[0];
    zero();
    std::size_t from = 1;
    for (std::vector<float>& v : sums_) {
      if (!v.empty()) std::memcpy(v.data(), &given[from], 4 * v.size());
      from += 4 * v.size();
    }
  }
  void zero() {
    sums_.clear();
    for (const Shape& t : job_.scenario.tensors) sums_.emplace_back(t.n);
  }

  // ---- The loop

  Status take_part() {
    TITHE_TRY(open());
    if (sums_.empty()) zero();
    int tries = 0;
    while (step_ < job_.scenario.rounds && !net_.dead(me_)) {
      if (job_.between.count() > 0) net_.sleep(me_, job_.between);
      Status s = round();
      if (closed_) return {Code::kCancelled, "it left on purpose"};
      tries = s.ok() ? 0 : tries + 1;
      if (s.ok() && step_ < job_.scenario.rounds) {
        const auto waits = new_ranks_waiting(seen(), epoch_ + 1, members_, job_.max_world);
        if (waits.ok() && !*waits) continue;
        s = waits.ok() ? Status(Code::kCancelled, "somebody waits") : waits.status();
      }
      while (!s.ok()) {
        if (tries >= kTries) return s;
        const Code code = s.code();
        s = reform();
        if (s.ok()) break;
        ++tries;
        // A process without a quorum, or one who was excluded, does not continue.
        if (session_ == nullptr || net_.dead(me_) || code == Code::kIo) return s;
        if (may_not_go_on(s)) return s;
      }
    }
    return net_.dead(me_) ? Status(Code::kIo, "dead") : Status{};
  }

  static bool may_not_go_on(const Status& s) {
    return testing::has(s.what(), "cannot begin") || testing::has(s.what(), "continued without this rank") ||
           testing::has(s.what(), "may come back") || s.code() == Code::kInvalid;
  }

  Status round() {
    const Scenario& scenario = job_.scenario;
    CommittedRound committed{
        .epoch = epoch_, .members = processes_, .step = step_, .life = life_, .lost = lost_};
    committed.before = residuals();
    for (std::size_t t = 0; t < scenario.tensors.size(); ++t)
      committed.result.push_back(job_.gradient(t, me_, epoch_, step_));
    if (scenario.propose_at == step_ && session_->rank() == 0) (void)session_->propose(scenario.proposal);
    strike(step_, kBeforeSync);
    if (closed_) return {};
    std::vector<Ticket> tickets;
    for (const std::vector<std::size_t>& bucket : scenario.buckets[static_cast<std::size_t>(step_)]) {
      std::vector<Tensor> tensors;
      for (const std::size_t t : bucket)
        tensors.push_back({.key = scenario.tensors[t].key,
                           .data = committed.result[t].data(),
                           .n = committed.result[t].size(),
                           .row = scenario.tensors[t].row});
      const Result<Ticket> ticket = session_->sync(tensors);
      if (!ticket.ok()) return ticket.status();
      tickets.push_back(*ticket);
      if (tickets.size() == 1) strike(step_, kBetweenSyncs);
      if (closed_) return {};
    }
    strike(step_, kBeforeWait);
    for (const Ticket ticket : tickets)
      if (!closed_) TITHE_TRY(session_->wait(ticket));
    strike(step_, kBeforeCommit);
    if (closed_) return {};
    TITHE_TRY(session_->commit());
    committed.dropped = session_->last_round_dropped();
    committed.after = residuals();
    committed.ranks_lost = session_->stats().ranks_lost;
    committed.at = net_.now();
    for (std::size_t t = 0; t < sums_.size() && !committed.dropped; ++t)
      for (std::size_t i = 0; i < sums_[t].size(); ++i) sums_[t][i] += committed.result[t][i];
    outcome_.committed_rounds.push_back(std::move(committed));
    const int done = step_++;
    strike(done, kAfterCommit);
    return {};
  }

  Values residuals() const {
    Values all;
    for (const Shape& t : job_.scenario.tensors) {
      std::vector<float> v(t.n);
      if (!session_->residual(t.key, v).ok()) std::fill(v.begin(), v.end(), 0.0F);
      all.push_back(std::move(v));
    }
    return all;
  }

  void strike(int round, int step) {
    for (std::size_t k = 0; k < job_.faults.size(); ++k) {
      const Fault& f = job_.faults[k];
      if (f.who != me_ || f.round != round || f.step != step || net_.struck(k)) continue;
      if (f.kind == FaultKind::kClose && step < kSteps) {
        closed_ = true;
        session_.reset();
      } else {
        net_.strike(k);
      }
    }
  }

  const std::string& name() const { return job_.processes[static_cast<std::size_t>(me_)].name; }

  const Job& job_;
  Network& net_;
  Boards& boards_;
  MemberOutcome& outcome_;
  const int me_;
  std::unique_ptr<Session> session_;
  Names members_;
  std::vector<int> processes_;  // by rank, in the latest epoch
  std::vector<int> group_;      // of the present session
  std::uint64_t epoch_ = 0, session_epoch_ = 0, lost_ = 0;
  std::set<std::string> missed_;
  Values sums_;
  int step_ = 0, life_ = 0, reforms_ = 0;
  std::uint64_t looks_ = 0;
  bool closed_ = false;
};

}  // namespace

SessionOptions Job::options(std::vector<std::string> members, std::uint64_t epoch) const {
  SessionOptions o = scenario.options(0);
  o.hosts.clear();
  o.members = std::move(members);
  o.epoch = epoch;
  return o;
}

JobOutcome play(const Job& job) {
  Network net(static_cast<int>(job.processes.size()), job.scenario.conditions, job.faults, true,
              100 * kTimeout);
  net.place_on_hosts(job.hosts);
  Boards boards;
  JobOutcome result;
  result.outcomes.resize(job.processes.size());
  net.run([&](int p) { Member(job, net, boards, result.outcomes[static_cast<std::size_t>(p)], p).live(); });
  for (std::size_t k = 0; k < job.faults.size(); ++k) {
    result.struck.push_back(net.struck(k) ? 1 : 0);
    result.struck_at.push_back(net.struck_at(k));
  }
  for (int p = 0; p < static_cast<int>(job.processes.size()); ++p) result.counts.push_back(net.counts(p));
  result.hung = net.hung();
  result.clash = net.clash();
  return result;
}

}  // namespace tithe::chaos
