// SPDX-License-Identifier: Apache-2.0
#include "engine/carry_store.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/bytes.h"
#include "codec/leave.h"

namespace tithe::engine {
namespace {

constexpr std::uint32_t kStateMagic = 0x53544954;  // "TITS" in file order
constexpr std::uint32_t kStateVersion = 3;

template <typename T>
void put(std::vector<std::uint8_t>& out, T v) {
  out.resize(out.size() + sizeof v);
  wire::put(out.data() + out.size() - sizeof v, v);
}

void put_text(std::vector<std::uint8_t>& out, std::string_view s) {
  put(out, static_cast<std::uint64_t>(s.size()));
  out.insert(out.end(), s.begin(), s.end());
}

void put_floats(std::vector<std::uint8_t>& out, std::span<const float> v) {
  put(out, static_cast<std::uint64_t>(v.size()));
  for (const float f : v) put(out, f);
}

void put_bytes(std::vector<std::uint8_t>& out, ByteView v) {
  put(out, static_cast<std::uint64_t>(v.size()));
  out.insert(out.end(), v.begin(), v.end());
}

class Reader {
 public:
  explicit Reader(ByteView in) : in_(in) {}
  template <typename T>
  T number() {
    T v{};
    if (in_.size() < sizeof v) {
      whole_ = false;
      return v;
    }
    v = wire::get<T>(in_.data());
    in_ = in_.subspan(sizeof v);
    return v;
  }
  ByteView bytes(std::uint64_t count, std::size_t each) {
    if (count > in_.size() / each) {
      whole_ = false;
      return {};
    }
    const ByteView b = in_.first(count * each);
    in_ = in_.subspan(count * each);
    return b;
  }
  std::string text() {
    const ByteView b = bytes(number<std::uint64_t>(), 1);
    return {b.begin(), b.end()};
  }
  std::vector<float> floats() {
    const ByteView b = bytes(number<std::uint64_t>(), sizeof(float));
    std::vector<float> v(b.size() / sizeof(float));
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = wire::get<float>(&b[4 * i]);
    return v;
  }
  bool whole() const { return whole_; }
  bool done() const { return whole_ && in_.empty(); }

 private:
  ByteView in_;
  bool whole_ = true;
};

std::span<const float> tidy(std::span<const float> v) {  // zeros need no bytes
  return std::all_of(v.begin(), v.end(), [](float f) { return std::bit_cast<std::uint32_t>(f) == 0; })
             ? std::span<const float>{}
             : v;
}

ByteView tidy(ByteView v) {
  return std::all_of(v.begin(), v.end(), [](std::uint8_t b) { return b == 0; }) ? ByteView{} : v;
}

}  // namespace

Home& CarryStore::home(std::string_view key) {
  const auto at = homes_.find(key);
  return at != homes_.end() ? at->second : homes_.emplace(std::string(key), Home{}).first->second;
}

const Home* CarryStore::find(std::string_view key) const {
  const auto at = homes_.find(key);
  return at == homes_.end() ? nullptr : &at->second;
}

std::span<const float> CarryStore::residual(const Home& h) {
  return h.unit == nullptr ? std::span<const float>(h.residual)
                           : h.unit->residual(h.unit->tensors()[h.tensor]);
}

std::span<const float> CarryStore::velocity(const Home& h) {
  return h.unit == nullptr ? std::span<const float>(h.velocity)
                           : h.unit->velocity(h.unit->tensors()[h.tensor]);
}

ByteView CarryStore::memory(const Home& h) {
  return h.unit == nullptr ? ByteView(h.memory) : h.unit->memory(h.unit->tensors()[h.tensor]);
}

std::uint64_t CarryStore::memory_kind(const Home& h) {
  return h.unit == nullptr ? h.memory_kind : h.unit->memory_kind(h.unit->tensors()[h.tensor]);
}

void CarryStore::move_in(Home& home, Unit& unit, std::size_t index) {
  if (home.unit == &unit) return;
  const TensorLayout& t = unit.tensors()[index];
  const auto move = [](std::span<const float> from, std::span<float> to) {
    if (to.empty()) return;
    if (from.empty())
      std::fill(to.begin(), to.end(), 0.0F);
    else
      std::copy(from.begin(), from.end(), to.begin());
  };
  unit.adopt(t, residual(home));
  move(velocity(home), unit.velocity(t));
  const std::span<std::uint8_t> memory = unit.memory(t);
  const ByteView had = CarryStore::memory(home);
  if (had.size() == memory.size() && memory_kind(home) == unit.memory_kind(t))
    std::copy(had.begin(), had.end(), memory.begin());
  else
    std::fill(memory.begin(), memory.end(), std::uint8_t{0});
  home.unit = &unit;
  home.tensor = index;
  home.n = t.n;
  home.residual = {};
  home.velocity = {};
  home.memory = {};
}

std::vector<std::uint8_t> save(const SavedHead& head, const CarryStore& store) {
  std::vector<std::uint8_t> out;
  put(out, kStateMagic);
  put(out, kStateVersion);
  put(out, static_cast<std::uint32_t>(head.rank));
  put(out, static_cast<std::uint32_t>(head.world));
  put(out, head.round);
  put_text(out, head.codec);
  put_text(out, head.schedule);
  put(out, head.told.learning_rate);
  put(out, head.told.least_loss);
  put(out, head.told.steps);
  put(out, static_cast<std::uint64_t>(store.all().size()));
  for (const auto& [key, home] : store.all()) {
    put_text(out, key);
    put(out, static_cast<std::uint64_t>(home.n));
    put_floats(out, tidy(CarryStore::residual(home)));
    put_floats(out, tidy(CarryStore::velocity(home)));
    const ByteView memory = tidy(CarryStore::memory(home));
    put(out, memory.empty() ? std::uint64_t{0} : CarryStore::memory_kind(home));
    put_bytes(out, memory);
  }
  put(out, static_cast<std::uint64_t>(XXH3_64bits(out.data(), out.size())));
  return out;
}

Status load(ByteView bytes, SavedHead& head, std::map<std::string, Home, std::less<>>& homes) {
  const Status corrupt(Code::kCorrupt, "these bytes are not a saved state of a session");
  if (bytes.size() < sizeof(std::uint64_t)) return corrupt;
  const ByteView body = bytes.first(bytes.size() - sizeof(std::uint64_t));
  if (XXH3_64bits(body.data(), body.size()) != wire::get<std::uint64_t>(body.data() + body.size()))
    return corrupt;
  Reader r(body);
  if (r.number<std::uint32_t>() != kStateMagic) return corrupt;
  if (const auto version = r.number<std::uint32_t>(); version != kStateVersion)
    return {Code::kMismatch, "a saved state of version " + std::to_string(version) + ", this build reads " +
                                 std::to_string(kStateVersion)};
  head.rank = static_cast<Rank>(r.number<std::uint32_t>());
  head.world = static_cast<int>(r.number<std::uint32_t>());
  head.round = r.number<std::uint64_t>();
  head.codec = r.text();
  head.schedule = r.text();
  head.told.learning_rate = r.number<double>();
  head.told.least_loss = r.number<double>();
  head.told.steps = r.number<std::uint32_t>();
  const auto keys = r.number<std::uint64_t>();
  for (std::uint64_t k = 0; k < keys && r.whole(); ++k) {
    std::string key = r.text();
    if (!homes.empty() && key <= homes.rbegin()->first) return corrupt;
    Home h;
    h.n = r.number<std::uint64_t>();
    h.residual = r.floats();
    h.velocity = r.floats();
    h.memory_kind = r.number<std::uint64_t>();
    const ByteView memory = r.bytes(r.number<std::uint64_t>(), 1);
    h.memory.assign(memory.begin(), memory.end());
    if ((!h.residual.empty() && h.residual.size() != h.n) ||
        (!h.velocity.empty() && h.velocity.size() != h.n))
      return corrupt;
    if (!codec::all_finite(h.residual) || !codec::all_finite(h.velocity))
      return {Code::kCorrupt, "the saved state holds a NaN or Inf for tensor '" + key +
                                  "': it would spread to every rank; resume from an earlier one"};
    homes.emplace(std::move(key), std::move(h));
  }
  return r.done() ? Status{} : corrupt;
}

}  // namespace tithe::engine
