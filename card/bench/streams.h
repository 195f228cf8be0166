// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by all benches: a clock around a Verilated module, ends of AXI4-Streams that pause at random and check
// the rules, and the arguments: --floats=N, --mutants=N, --seed=N, --waves=FILE (of a build with WAVES=1),
// and --serve, which card.cc defines.
#include <verilated.h>
#ifdef WAVES
#include <verilated_fst_c.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "check.h"

namespace bench {

struct Args {
  std::uint64_t floats = 1000000;
  std::uint64_t mutants = 10000;
  std::uint64_t seed = 1;
  std::string waves;
  bool serve = false;
};

inline Args args(int argc, char** argv) {
  Args a;
  for (int i = 1; i < argc; ++i) {
    const std::string_view one = argv[i];
    if (one.starts_with("--floats=")) a.floats = std::strtoull(argv[i] + 9, nullptr, 10);
    if (one.starts_with("--mutants=")) a.mutants = std::strtoull(argv[i] + 10, nullptr, 10);
    if (one.starts_with("--seed=")) a.seed = std::strtoull(argv[i] + 7, nullptr, 10);
    if (one.starts_with("--waves=")) a.waves = one.substr(8);
    a.serve = a.serve || one == "--serve";
  }
  return a;
}

// A module with its clock. Inputs are set before step(); outputs are read after settle().
template <typename Model>
class Dut {
 public:
  explicit Dut(const Args& args) : model_(made(args)) {
    Verilated::assertOn(true);
#ifdef WAVES
    if (!args.waves.empty()) {
      Verilated::traceEverOn(true);
      waves_ = std::make_unique<VerilatedFstC>();
      model_->trace(waves_.get(), 99);
      waves_->open(args.waves.c_str());
    }
#endif
  }
  ~Dut() {
    model_->final();
#ifdef WAVES
    if (waves_) waves_->close();
#endif
  }
  Dut(const Dut&) = delete;
  Dut& operator=(const Dut&) = delete;

  Model* operator->() { return model_.get(); }
  Model& operator*() { return *model_; }

  void reset() {
    model_->rst = 1;
    for (int i = 0; i < 3; ++i) step();
    model_->rst = 0;
  }
  void settle() {
    model_->clk = 0;
    model_->eval();
    dump();
  }
  void edge() {
    model_->clk = 1;
    model_->eval();
    dump();
    ++cycles_;
  }
  void step() {
    settle();
    edge();
  }
  std::uint64_t cycles() const { return cycles_; }

 private:
  // Registers and inputs begin with random values; the runtime must be configured before the model exists.
  static std::unique_ptr<Model> made(const Args& args) {
    seed() = args.seed;
    Verilated::randReset(2);
    Verilated::randSeed(static_cast<int>(args.seed));
    return std::make_unique<Model>();
  }
  void dump() {
#ifdef WAVES
    if (waves_) waves_->dump(time_++);
#endif
  }
  std::unique_ptr<Model> model_;
#ifdef WAVES
  std::unique_ptr<VerilatedFstC> waves_;
  std::uint64_t time_ = 0;
#endif
  std::uint64_t cycles_ = 0;
};

// Ports of any width are bytes, lowest first.
template <typename Port>
void put(Port& port, const void* from, std::size_t bytes) {
  std::uint8_t* to = reinterpret_cast<std::uint8_t*>(&port);
  std::memset(to, 0, sizeof(Port));
  std::memcpy(to, from, std::min(bytes, sizeof(Port)));
}
template <typename Port>
std::uint64_t low64(const Port& port) {
  std::uint64_t value = 0;
  std::memcpy(&value, &port, std::min(sizeof(Port), sizeof value));
  return value;
}

// When an end of a stream pauses.
class Pause {
 public:
  enum Kind { kNever, kTenth, kHalf, kMost, kAlternate, kOneInFour, kLong, kKinds };
  static const char* name(Kind kind) {
    static const char* const names[] = {"never",     "10 %",       "50 %",       "90 %",
                                        "alternate", "3 off 1 on", "200 off, on"};
    return names[kind];
  }
  Pause(Kind kind, std::uint64_t seed) : kind_(kind), random_(seed) {}
  bool now() {
    ++count_;
    switch (kind_) {
      case kNever:
        return false;
      case kTenth:
        return random_() % 10 == 0;
      case kHalf:
        return random_() % 2 == 0;
      case kMost:
        return random_() % 10 != 0;
      case kAlternate:
        return count_ % 2 == 0;
      case kOneInFour:
        return count_ % 4 != 0;
      default:
        return count_ % 1000 < 200;
    }
  }

 private:
  Kind kind_;
  std::minstd_rand random_;
  std::uint64_t count_ = 0;
};

// Drives packets into a module. Call before() ahead of the edge's settle, after() between settle and edge.
template <typename Data, typename Keep, typename User>
class Source {
 public:
  Source(Data& data, Keep& keep, CData& valid, CData& ready, CData& last, User* user, Pause pause)
      : data_(data), keep_(keep), valid_(valid), ready_(ready), last_(last), user_(user), pause_(pause) {
    valid_ = 0;
  }
  void push(Packet packet) { queue_.push_back(std::move(packet)); }
  // The packet of which the first beat is offered.
  const Packet* begins() const { return valid_ && at_ <= sizeof(Data) ? &queue_.front() : nullptr; }
  std::uint64_t beats() const { return beats_; }
  void set(Pause pause) { pause_ = pause; }

  void before() {
    if (valid_ || queue_.empty() || pause_.now()) return;
    const Packet& p = queue_.front();
    const std::size_t n = std::min(sizeof(Data), p.bytes.size() - at_);
    const std::uint64_t keep = n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
    put(data_, p.bytes.data() + at_, n);
    put(keep_, &keep, sizeof keep);
    last_ = at_ + n == p.bytes.size();
    if (user_) *user_ = static_cast<User>(at_ == 0 ? p.user : 0);
    valid_ = 1;
    at_ += n;
  }
  // True when a beat went.
  bool after() {
    if (!valid_ || !ready_) return false;
    ++beats_;
    sent_ = true;
    return true;
  }
  // After the edge.
  void done() {
    if (!sent_) return;
    sent_ = false;
    valid_ = 0;
    if (last_) {
      queue_.pop_front();
      at_ = 0;
    }
  }

 private:
  Data& data_;
  Keep& keep_;
  CData &valid_, &ready_, &last_;
  User* user_;
  Pause pause_;
  std::deque<Packet> queue_;
  std::size_t at_ = 0;
  std::uint64_t beats_ = 0;
  bool sent_ = false;
};

// Takes packets from a module.
template <typename Data, typename Keep, typename User>
class Sink {
 public:
  Sink(const Data& data, const Keep& keep, CData& valid, CData& ready, const CData& last, const User* user,
       Pause pause)
      : data_(data), keep_(keep), valid_(valid), ready_(ready), last_(last), user_(user), pause_(pause) {
    ready_ = 0;
  }
  void set(Pause pause) { pause_ = pause; }
  bool has() const { return !packets_.empty(); }
  Packet take() {
    Packet p = std::move(packets_.front());
    packets_.pop_front();
    return p;
  }
  std::uint64_t beats() const { return beats_; }

  void before() { ready_ = !pause_.now(); }
  bool after() {
    if (!valid_ || !ready_) return false;
    ++beats_;
    const std::uint64_t keep = low64(keep_);
    const auto n = static_cast<std::size_t>(__builtin_popcountll(keep));
    const auto* from = reinterpret_cast<const std::uint8_t*>(&data_);
    now_.bytes.insert(now_.bytes.end(), from, from + n);
    if (last_) {
      now_.user = user_ ? low64(*user_) : 0;
      packets_.push_back(std::move(now_));
      now_ = {};
    }
    return true;
  }

 private:
  const Data& data_;
  const Keep& keep_;
  CData &valid_, &ready_;
  const CData& last_;
  const User* user_;
  Pause pause_;
  Packet now_;
  std::deque<Packet> packets_;
  std::uint64_t beats_ = 0;
};

// One cycle of a module between a source and a sink: whether something moved.
template <typename Model, typename In, typename Out>
bool cycle(Dut<Model>& dut, In& in, Out& out) {
  in.before();
  out.before();
  dut.settle();
  const bool went = in.after();
  const bool came = out.after();
  dut.edge();
  in.done();
  return went || came;
}

}  // namespace bench
