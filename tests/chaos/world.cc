// SPDX-License-Identifier: Apache-2.0
#include "chaos/world.h"

#include <fmt/format.h>

#include <mutex>
#include <set>

#include "support/gpu/fake_here.h"
#include "support/gpu/gpu_tensors.h"
#include "support/ranks.h"

namespace tithe::chaos {
namespace {

using testing::at;
using testing::fake_gpu;
using testing::GpuTensors;

// One rank's sequence of calls, as in a training loop.
class RankDriver {
 public:
  RankDriver(const Scenario& scenario, const Run& how, Network& net, RunRecord& run_record, Rank me)
      : scenario_(scenario),
        how_(how),
        net_(net),
        record_(run_record),
        me_(me),
        on_gpu_(how.gpus && (scenario.on_gpu >> me & 1) != 0),
        end_(run_record.ends[at(me)]) {}

  void play() {
    end_.committed = how_.from;
    auto opened = Session::open(net_.open(me_), scenario_.options(how_.lanes));
    if (!opened.ok()) {
      failed(opened.status(), "open", how_.from);
      return;
    }
    session_ = std::move(*opened);
    if (how_.states != nullptr) {
      const Status s = session_->restore((*how_.states)[at(me_)]);
      if (!s.ok()) record_.refused[at(me_)] = s.what();
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

  // Strikes with the fault if this is its point. True if this rank continues.
  bool step(int round, Step which) {
    const Fault& f = how_.fault;
    if (f.who != me_ || f.round != round || f.step != which) return true;
    if (f.kind == FaultKind::kClose) {
      end_.left = true;
      session_.reset();
      return false;
    }
    net_.strike();
    if (f.kind == FaultKind::kDriver) faulty_ = true;
    return true;
  }

  // A bucket and its memory.
  struct Place {
    std::vector<Tensor> here, there;
    std::unique_ptr<GpuTensors> gpu;
  };
  Place place(const std::vector<std::size_t>& bucket, RankRound& record) {
    Place p;
    for (const std::size_t t : bucket)
      p.here.push_back({.key = scenario_.tensors[t].key,
                        .data = record.result[t].data(),
                        .n = record.result[t].size(),
                        .row = scenario_.tensors[t].row});
    if (!on_gpu_) return p;
    p.gpu = std::make_unique<GpuTensors>();
    p.there = p.gpu->take(p.here, scenario_.seed % 2 == 0);
    return p;
  }
  // Driver failures strike the session's calls, not those of this test.
  void let_fail(bool now) {
    if (faulty_ && now)
      fake_gpu().fail(scenario_.driver.call.c_str(), scenario_.driver.nth, scenario_.driver.error(),
                      scenario_.driver.for_good);
    if (faulty_ && !now) fake_gpu().forgive();
  }

  void play(int round) {
    RankRound& record = record_.rounds[at(me_)][at(round)];
    for (std::size_t t = 0; t < scenario_.tensors.size(); ++t)
      record.result.push_back(scenario_.gradient(t, me_, round));
    // Random conditions decide whether it is accepted: a rule may name a tensor before the first round is complete.
    if (me_ == 0 && round == scenario_.propose_at) (void)session_->propose(scenario_.proposal);
    record.choices = session_->choices();
    if (!step(round, kBeforeSync)) return;
    std::vector<Place> places;
    for (const std::vector<std::size_t>& bucket : scenario_.buckets[at(round)])
      places.push_back(place(bucket, record));
    let_fail(true);
    const bool committed = exchange(round, places);
    let_fail(false);
    if (!committed) return;
    record.committed = true;
    record.dropped = session_->last_round_dropped();
    end_.committed = round + 1;
    if (on_gpu_)
      for (Place& p : places) p.gpu->read(p.there, p.here);
    note_residuals(record);
    if (scenario_.saves) {
      const auto saved = session_->state();
      if (failed(saved.status(), "state", round)) return;
      record.saved = *saved;
    }
    step(round, kAfterCommit);
  }

  bool exchange(int round, std::vector<Place>& places) {
    std::vector<Ticket> tickets;
    for (Place& p : places) {
      const Result<Ticket> ticket = on_gpu_ ? session_->sync(p.there, p.gpu->origin(), scenario_.kind)
                                            : session_->sync(p.here, {}, scenario_.kind);
      if (failed(ticket.status(), "sync", round)) return false;
      tickets.push_back(*ticket);
      if ((scenario_.impatient >> me_ & 1) != 0) {
        if (failed(session_->wait(*ticket), "wait", round)) return false;
        tickets.back() = 0;
      }
      if (tickets.size() == 1 && !step(round, kBetweenSyncs)) return false;
    }
    if (!step(round, kBeforeWait)) return false;
    for (const Ticket ticket : tickets)
      if (ticket != 0 && (scenario_.hasty >> me_ & 1) == 0 && failed(session_->wait(ticket), "wait", round))
        return false;
    return step(round, kBeforeCommit) && !failed(session_->commit(), "commit", round);
  }

  void note_residuals(RankRound& record) {
    for (const Shape& t : scenario_.tensors) {
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

  const Scenario& scenario_;
  const Run& how_;
  Network& net_;
  RunRecord& record_;
  const Rank me_;
  const bool on_gpu_;
  bool faulty_ = false;  // the driver, from now on
  RankEnd& end_;
  std::unique_ptr<Session> session_;
};

// Compiles and verifies the ranks' programs in advance: during a compilation in a run, the network's clock would
// advance.
void prepare(const Scenario& scenario) {
  static std::set<std::string> done;
  std::vector<Spec> specs = {scenario.law.spec};
  if (scenario.propose_at >= 0) specs.push_back(*parse_spec("topk"));
  for (const Spec& spec : specs) {
    if (!done.insert(to_string(spec)).second) continue;
    testing::Ranks one(open_loop(1), {.min_values = 0, .device = scenario.device, .spec = spec});
    std::vector<float> values(64, 1.0F);
    const Tensor here{.key = "w", .data = values.data(), .n = values.size()};
    GpuTensors gpu;
    const std::vector<Tensor> there = gpu.take({&here, 1});
    EXPECT_TRUE(one[0].sync(there, gpu.origin()).ok());
    EXPECT_TRUE(one[0].commit().ok());
    EXPECT_TRUE(testing::has(one[0].plan_text(), "on GPU 0")) << one[0].plan_text();
  }
}

}  // namespace

RunRecord run(const Scenario& scenario, const Run& how) {
  const bool gpus = how.gpus && scenario.on_gpu != 0;
  if (gpus) {
    fake_gpu().reset(how.conditions.seed);
    if (scenario.device != "off") prepare(scenario);
  }
  Network net(scenario.world, how.conditions, {how.fault}, how.lanes == 0,
              (how.fault.kind == FaultKind::kSlow ? 10'000 : 100) * kTimeout);
  RunRecord run_record;
  run_record.rounds.assign(at(scenario.world), std::vector<RankRound>(at(scenario.rounds)));
  run_record.ends.resize(at(scenario.world));
  run_record.refused.resize(at(scenario.world));
  net.run([&](Rank r) { RankDriver(scenario, how, net, run_record, r).play(); });
  for (Rank r = 0; r < scenario.world; ++r) run_record.counts.push_back(net.counts(r));
  run_record.hung = net.hung();
  run_record.clash = net.clash();
  run_record.struck = net.struck();
  run_record.struck_at = net.struck_at();
  run_record.changed = net.changed();
  if (gpus) {
    run_record.gpu = fake_gpu().problem();
    // A driver that fails for good fails releases too.
    const bool released = how.fault.kind != FaultKind::kDriver || !scenario.driver.for_good;
    if (run_record.gpu.empty() && !fake_gpu().broken() && released && fake_gpu().alive() > 0)
      run_record.gpu = fmt::format("{} things were not given back", fake_gpu().alive());
  }
  return run_record;
}

}  // namespace tithe::chaos
