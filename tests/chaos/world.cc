// SPDX-License-Identifier: Apache-2.0
#include "chaos/world.h"

#include <fmt/format.h>

namespace tithe::chaos {
namespace {

std::size_t at(Rank r) { return static_cast<std::size_t>(r); }

// One rank's course of calls, as a training loop makes them.
class Player {
 public:
  Player(const Plot& plot, const Run& how, Network& net, Course& course, Rank me)
      : plot_(plot), how_(how), net_(net), course_(course), me_(me), end_(course.ends[at(me)]) {}

  void play() {
    end_.committed = how_.from;
    auto opened = Session::open(net_.open(me_), plot_.options(how_.lanes));
    if (!opened.ok()) {
      failed(opened.status(), "open", how_.from);
      return;
    }
    session_ = std::move(*opened);
    if (how_.states != nullptr) {
      const Status s = session_->restore((*how_.states)[at(me_)]);
      if (!s.ok()) course_.refused[at(me_)] = s.what();
    }
    for (int round = how_.from; round < how_.to && end_.round < 0 && !end_.left; ++round) play(round);
    if (!end_.left) save();
    session_.reset();
  }

 private:
  bool failed(const Status& s, std::string_view where, int round) {
    if (s.ok()) return false;
    end_.status = s;
    end_.where = where;
    end_.round = round;
    end_.at = net_.now();
    return true;
  }

  // The fault, if this is its place. True if this rank is to go on.
  bool step(int round, Step which) {
    const Fault& f = how_.fault;
    if (f.who != me_ || f.round != round || f.step != which) return true;
    if (f.kind == FaultKind::kClose) {
      end_.left = true;
      session_.reset();
      return false;
    }
    net_.strike();
    return true;
  }

  void play(int round) {
    RankRound& record = course_.rounds[at(me_)][at(round)];
    for (std::size_t t = 0; t < plot_.tensors.size(); ++t)
      record.result.push_back(plot_.gradient(t, me_, round));
    // The weather decides if it is taken: a rule may name a tensor, and no round be over.
    if (me_ == 0 && round == plot_.propose_at) (void)session_->propose(plot_.proposal);
    record.choices = session_->choices();
    if (!step(round, kBeforeSync)) return;
    std::vector<Ticket> tickets;
    for (const std::vector<std::size_t>& bucket : plot_.buckets[at(round)]) {
      std::vector<Tensor> tensors;
      for (const std::size_t t : bucket)
        tensors.push_back({.key = plot_.tensors[t].key,
                           .data = record.result[t].data(),
                           .n = record.result[t].size(),
                           .row = plot_.tensors[t].row});
      const Result<Ticket> ticket = session_->sync(tensors);
      if (failed(ticket.status(), "sync", round)) return;
      tickets.push_back(*ticket);
      if ((plot_.impatient >> me_ & 1) != 0) {
        if (failed(session_->wait(*ticket), "wait", round)) return;
        tickets.back() = 0;
      }
      if (tickets.size() == 1 && !step(round, kBetweenSyncs)) return;
    }
    if (!step(round, kBeforeWait)) return;
    for (const Ticket ticket : tickets)
      if (ticket != 0 && (plot_.hasty >> me_ & 1) == 0 && failed(session_->wait(ticket), "wait", round))
        return;
    if (!step(round, kBeforeCommit)) return;
    if (failed(session_->commit(), "commit", round)) return;
    record.committed = true;
    record.dropped = session_->last_round_dropped();
    end_.committed = round + 1;
    note_residuals(record);
    if (plot_.saves) {
      const auto saved = session_->state();
      if (failed(saved.status(), "state", round)) return;
      record.saved = *saved;
    }
    step(round, kAfterCommit);
  }

  void note_residuals(RankRound& record) {
    for (const Shape& t : plot_.tensors) {
      std::vector<float> v(t.n);
      if (!session_->residual(t.key, v).ok()) std::fill(v.begin(), v.end(), 0.0F);
      record.residual.push_back(std::move(v));
    }
  }

  void save() {
    const auto state = session_->state();
    end_.save = state.status();
    if (state.ok()) end_.state = *state;
  }

  const Plot& plot_;
  const Run& how_;
  Network& net_;
  Course& course_;
  const Rank me_;
  RankEnd& end_;
  std::unique_ptr<Session> session_;
};

}  // namespace

Course run(const Plot& plot, const Run& how) {
  Network net(plot.world, how.weather, {how.fault}, how.lanes == 0,
              (how.fault.kind == FaultKind::kSlow ? 10'000 : 100) * kTimeout);
  Course course;
  course.rounds.assign(at(plot.world), std::vector<RankRound>(at(plot.rounds)));
  course.ends.resize(at(plot.world));
  course.refused.resize(at(plot.world));
  net.run([&](Rank r) { Player(plot, how, net, course, r).play(); });
  for (Rank r = 0; r < plot.world; ++r) course.counts.push_back(net.counts(r));
  course.hung = net.hung();
  course.struck = net.struck();
  course.struck_at = net.struck_at();
  course.changed = net.changed();
  return course;
}

}  // namespace tithe::chaos
