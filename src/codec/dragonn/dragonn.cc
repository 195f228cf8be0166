// SPDX-License-Identifier: Apache-2.0
#include "codec/dragonn/dragonn.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/select.h"
#include "codec/shared/sparse/select_fast.h"
#include "codec/shared/sparse/sparse_typical.h"
#include "codec/shared/sparse/sparsifier.h"

namespace tithe {
namespace dragonn {
namespace {

enum Param : std::size_t { kRatio, kSample, kSlots, kForm };
constexpr ParamSpec kParams[] = {
    {"ratio", 0.01, 1e-6, 1, "fraction of the values that reach the threshold, about", {}, Role::kRatio},
    {"sample", 0.01, 1e-4, 1, "fraction of the values that the threshold is estimated from, about"},
    {"slots", 4, 0.25, 16, "slots of a block's table, in units of ratio * values"},
    sparse::kValuesParam,
    sparse::kIndicesParam};

sparse::Form form(const Settings& s) { return sparse::form_of(s, kForm); }

constexpr std::size_t kBlock = 65536;

// Slots for a block of `length` values.
std::uint32_t slots_of(const Settings& s, std::size_t length) {
  const double slots = std::ceil(s[kSlots] * s[kRatio] * static_cast<double>(length));
  return static_cast<std::uint32_t>(std::max(1.0, slots));
}

std::size_t most(const Settings& s, std::size_t n) {
  const auto of_block = [&](std::size_t length) {
    return std::min<std::size_t>(length, slots_of(s, length));
  };
  return n / kBlock * of_block(kBlock) + of_block(n % kBlock);
}

std::size_t bound(const Settings& s, std::size_t n) { return sparse::bound(form(s), most(s, n), n); }

// Each slot with at least one candidate sends one, so this is the expected number of slots hit.
std::size_t typical(const Settings& s, std::size_t n) {
  const auto of_block = [&](std::size_t length) {
    if (length == 0) return 0.0;
    const double slots = slots_of(s, length);
    return slots * -std::expm1(-s[kRatio] * static_cast<double>(length) / slots);
  };
  const std::size_t blocks = n / kBlock;
  const double winners = static_cast<double>(blocks) * of_block(kBlock) + of_block(n % kBlock);
  return sparse::typical(form(s), winners, n);
}

Status check(const Call& call, std::size_t n, ByteView payload) {
  return sparse::check("dragonn", n, most(call.settings, n), payload);
}

struct Keys {
  std::uint64_t sample;
  std::uint32_t hash;
};
Keys keys(const Call& call) {
  const std::uint64_t key = rng_key(call.seed, call.round, call.tensor, call.chunk, call.phase);
  return {.sample = key, .hash = static_cast<std::uint32_t>(mix64(key) >> 32)};
}

// The reference: per block a table of slots. Candidates write their index in increasing order, so the highest index
// of a slot stays; sorting the table gives the winners in index order.
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(sparse::check_values("dragonn", in.n));
  TITHE_TRY(codec::check_room("dragonn", out.size(), bound(call.settings, in.n)));
  const double ratio = call.settings[kRatio];
  const Keys key = keys(call);
  const select::Sample sample = select::plan_sample(in.n, ratio, call.settings[kSample]);
  const std::uint32_t threshold = select::threshold_ref(sample, key.sample, ratio, in);
  const std::vector<float> values = select::taken(in);
  std::vector<std::uint32_t> picked;
  for (std::size_t start = 0; start < in.n; start += kBlock) {
    const std::size_t length = std::min(kBlock, in.n - start);
    const std::uint32_t slots = slots_of(call.settings, length);
    constexpr std::int64_t kEmpty = -1;
    std::vector<std::int64_t> table(slots, kEmpty);
    for (std::size_t i = start; i < start + length; ++i)
      if (sparse::magnitude(values[i]) >= threshold)
        table[slot_of(static_cast<std::uint32_t>(i), key.hash, slots)] = static_cast<std::int64_t>(i);
    std::sort(table.begin(), table.end());
    for (const std::int64_t winner : table)
      if (winner != kEmpty) picked.push_back(static_cast<std::uint32_t>(winner));
  }
  return select::send_ref(form(call.settings), in, values, picked, out);
}

// Scratch: candidates, slots, unsent values and hash table of one block; the values of all winners so far. A winner is
// a candidate that keeps its slot.
struct Layout {
  std::size_t list;   // elements of a block's list
  std::size_t table;  // slots of the longest block
  std::size_t winners;
  select::Sample sample;
  std::size_t bytes() const {
    return 4 * (2 * list + std::max(2 * list + table, sample.count() + select::kSlack) + winners);
  }
};

Layout layout(const Settings& s, std::size_t n) {
  const std::size_t block = std::min(n, kBlock);
  return {.list = block + select::kSlack,
          .table = slots_of(s, block),
          .winners = most(s, n),
          .sample = select::plan_sample(n, s[kRatio], s[kSample])};
}

std::size_t own_scratch(const Settings& s, std::size_t n) { return layout(s, n).bytes(); }
std::size_t scratch(const Settings& s, std::size_t n) {
  return sparse::scratch(form(s), own_scratch(s, n), most(s, n));
}

// To find the winners, each candidate reads its slot again. The table is never cleared: a slot that is read was
// written by a candidate of the same block.
Result<Encoded> encode_plain(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(sparse::check_values("dragonn", in.n));
  TITHE_TRY(codec::check_room("dragonn", out.size(), bound(call.settings, in.n)));
  TITHE_TRY(codec::check_scratch("dragonn", call.scratch.size(), scratch(call.settings, in.n)));
  const Layout lay = layout(call.settings, in.n);
  auto* index = reinterpret_cast<std::uint32_t*>(call.scratch.data());
  auto* value = reinterpret_cast<float*>(index + lay.list);
  auto* won = value + lay.list;
  auto* slot = reinterpret_cast<std::uint32_t*>(won + lay.winners);
  auto* lost = reinterpret_cast<float*>(slot + lay.list);
  auto* table = slot + 2 * lay.list;
  const double ratio = call.settings[kRatio];
  const Keys key = keys(call);
  const std::uint32_t threshold =
      select::threshold_simd(lay.sample, key.sample, select::threshold_rank(lay.sample, ratio), in, slot);
  std::uint8_t* sent = out.data() + sparse::kHead;
  std::size_t wins = 0;
  std::uint32_t peak = 0;
  for (std::size_t start = 0; start < in.n; start += kBlock) {
    const std::size_t length = std::min(kBlock, in.n - start);
    const select::Found found = select::collect(in, start, length, threshold, index, value);
    peak = std::max(peak, found.peak);
    hash(index, found.count, key.hash, slots_of(call.settings, length), slot);
    for (std::size_t j = 0; j < found.count; ++j) table[slot[j]] = static_cast<std::uint32_t>(j);
    // Separates winners and losers without a branch. The next winner overwrites a loser's index; there is a next
    // winner, since the last candidate wins. The slot that a loser overwrites has been read already.
    std::size_t losses = 0;
    for (std::size_t j = 0; j < found.count; ++j) {
      const bool wins_slot = table[slot[j]] == j;
      slot[losses] = index[j];
      lost[losses] = value[j];
      losses += !wins_slot;
      wire::put(sent + 4 * wins, index[j]);
      won[wins] = value[j];
      wins += wins_slot;
    }
    if (in.residual_out)
      for (std::size_t j = 0; j < losses; ++j) in.residual_out[slot[j]] = lost[j];
  }
  std::memcpy(sent + 4 * wins, won, 4 * wins);
  wire::put(out.data(), static_cast<std::uint32_t>(wins));
  return Encoded{.bytes = sparse::bytes(wins), .finite = peak < sparse::kFirstNonFinite};
}

constexpr Phase kPhases[] = {{.name = "pairs", .laws = sparse::kLaws, .bound = bound}};
constexpr std::span<const Impl> kImpls =
    sparse::kImpls<dragonn_codec, kForm, check, encode, encode_plain, own_scratch>;

}  // namespace
}  // namespace dragonn

const Codec dragonn_codec = {
    .name = "dragonn",
    .doc = "values above a sampled threshold that win a hash slot (Wang et al. 2022)",
    .params = dragonn::kParams,
    .phases = dragonn::kPhases,
    .traits = {.exact_ledger = true, .selects = true},
    .scratch = dragonn::scratch,
    .impls = dragonn::kImpls};

std::size_t dragonn_typical(const Settings& s, std::size_t n) { return dragonn::typical(s, n); }

}  // namespace tithe
