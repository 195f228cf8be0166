// SPDX-License-Identifier: Apache-2.0
#include "codec/randomk/randomk.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/finite.h"
#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/shared_indices.h"
#include "codec/shared/sparse/sparse.h"

namespace tithe {
namespace randomk {
namespace {

using sparse::ValueForm;

enum Param : std::size_t { kRatio, kValues };
constexpr ParamSpec kParams[] = {
    {"ratio", 0.01, 1e-6, 1, "fraction of the values that is sent", {}, Role::kRatio},
    sparse::kFixedValuesParam};

enum Offset : std::size_t { kAtCount = 8, kAtForm = 12, kAtZeros = 13, kHead = 16 };

std::size_t most(const Settings& s, std::size_t n) { return sparse::count_of(s[kRatio], n); }
ValueForm form(const Settings& s) { return static_cast<ValueForm>(static_cast<int>(s[kValues])); }

std::size_t bound(const Settings& s, std::size_t n) {
  return kHead + sparse::value_bytes(form(s), most(s, n));
}

// On average over the draws. A rounded form loses some of the energy that is sent.
double contraction(const Settings& s, std::size_t n) {
  const std::size_t k = most(s, n), one_in = (n + k - 1) / k;
  return 1 - sparse::kKeptEnergy[static_cast<std::size_t>(form(s))] / static_cast<double>(one_in);
}

struct View {
  explicit View(ByteView payload)
      : key(wire::get<std::uint64_t>(payload.data())),
        count(wire::get<std::uint32_t>(payload.data() + kAtCount)),
        values(static_cast<ValueForm>(payload[kAtForm])),
        array(payload.data() + kHead) {}
  float value(std::size_t j) const { return sparse::value_at(values, array, j); }
  std::uint64_t key;
  std::size_t count;
  ValueForm values;
  const std::uint8_t* array;
};

Status check(const Call& call, std::size_t n, ByteView payload) {
  TITHE_TRY(sparse::check_values("randomk", n));
  const auto corrupt = [](const std::string& why) { return Status(Code::kCorrupt, "randomk: " + why); };
  if (payload.size() < kHead)
    return corrupt("payload of " + std::to_string(payload.size()) + " bytes has no head");
  const std::size_t count = wire::get<std::uint32_t>(payload.data() + kAtCount);
  if (count > most(call.settings, n))
    return corrupt(std::to_string(count) + " values, at most " + std::to_string(most(call.settings, n)) +
                   " are allowed of " + std::to_string(n));
  if (payload[kAtForm] > sparse::kLastFixedForm) return corrupt("unknown form");
  for (std::size_t i = kAtZeros; i < kHead; ++i)
    if (payload[i] != 0) return corrupt("unknown form");
  const View view(payload);
  TITHE_TRY(codec::check_size("randomk", payload.size(), kHead + sparse::value_bytes(view.values, count)));
  return sparse::values_hold(view.values, payload.subspan(kHead), count) ? Status()
                                                                         : corrupt("an invalid code");
}

// The Source of codec/shared/sparse/shared_indices.h: the indices of a payload.
class IndexSource {
 public:
  IndexSource(std::uint64_t key, std::size_t n, std::size_t count) : key_(key), n_(n), count_(count) {}
  std::size_t read(std::span<std::uint32_t> indices) {
    const std::size_t some = std::min(indices.size(), count_ - drawn_);
    list_indices(key_, n_, count_, drawn_, indices.first(some));
    drawn_ += some;
    return some;
  }

 private:
  std::uint64_t key_;
  std::size_t n_;
  std::size_t count_;
  std::size_t drawn_ = 0;
};

// Writes the head; returns the key of the index draws.
std::uint64_t begin(const Call& call, std::size_t n, Bytes out) {
  const std::uint64_t key = rng_key(call.shared_seed, call.round, call.tensor, call.chunk, call.phase);
  wire::put(out.data(), key);
  wire::put(&out[kAtCount], static_cast<std::uint32_t>(most(call.settings, n)));
  out[kAtForm] = static_cast<std::uint8_t>(form(call.settings));
  std::fill(&out[kAtZeros], out.data() + kHead, std::uint8_t{0});
  return key;
}

// All values go to the residual first; the writer then removes the sent ones, or leaves their rounding errors.
Result<Encoded> encode_ref(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(sparse::check_values("randomk", in.n));
  TITHE_TRY(codec::check_room("randomk", out.size(), bound(call.settings, in.n)));
  std::vector<float> values(in.n);
  bool finite = true;
  for (std::size_t i = 0; i < in.n; ++i) {
    values[i] = in.value(i);
    finite = finite && is_finite(values[i]);
    in.store_residual(i, 0.0F);
  }
  const std::uint64_t key = begin(call, in.n, out);
  sparse::ArrayWriter writer(form(call.settings), in, out.data() + kHead);
  for (IndexDraws p(key, in.n, most(call.settings, in.n)); !p.done(); p.next())
    writer.send(p.index(), values[p.index()]);
  return Encoded{.bytes = kHead + writer.finish(), .finite = finite};
}

Result<Encoded> encode_simd(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(sparse::check_values("randomk", in.n));
  TITHE_TRY(codec::check_room("randomk", out.size(), bound(call.settings, in.n)));
  const std::uint64_t key = begin(call, in.n, out);
  sparse::ArrayWriter writer(form(call.settings), in, out.data() + kHead);
  const bool finite =
      sparse::store_residuals_and_send(in, IndexSource(key, in.n, most(call.settings, in.n)), writer);
  return Encoded{.bytes = kHead + writer.finish(), .finite = finite};
}

Status decode_ref(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
                  std::span<float> out) {
  TITHE_TRY(codec::check_all(check, call, payloads, out.size()));
  codec::begin_sum(merge, out);
  for (const ByteView payload : payloads) {
    const View view(payload);
    std::size_t j = 0;
    for (IndexDraws p(view.key, out.size(), view.count); !p.done(); p.next())
      out[p.index()] += view.value(j++);
  }
  codec::end_sum(merge, out);
  return {};
}

Status decode_simd(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
                   std::span<float> out) {
  TITHE_TRY(codec::check_all(check, call, payloads, out.size()));
  sparse::merge_arrays<IndexSource>(payloads, merge, out, [n = out.size()](ByteView payload) {
    const View view(payload);
    return sparse::IndexedArray<IndexSource>{view.values, view.array,
                                             sparse::IndexBatches(IndexSource(view.key, n, view.count))};
  });
  return {};
}

Result<Combined> combine(const Call& call, std::size_t n, Bytes acc, ByteView in, float* residual_out) {
  TITHE_TRY(check(call, n, acc));
  TITHE_TRY(check(call, n, in));
  if (std::memcmp(acc.data(), in.data(), kHead) != 0)
    return Status(Code::kCorrupt, "randomk: payloads of other indices or another form cannot be added");
  const View a(acc);
  return Combined{sparse::add_arrays(a.values, a.count, acc.data() + kHead, in.data() + kHead, residual_out,
                                     IndexSource(a.key, n, a.count))};
}

constexpr Law kLaws[] = {Law::kSum, Law::kDecode};
constexpr Phase kPhases[] = {{.name = "values", .laws = kLaws, .bound = bound}};
constexpr Impl kImpls[] = {
    codec::simd({.encode = encode_simd, .decode = decode_simd, .check = check, .combine = combine}),
    codec::reference({.encode = encode_ref, .decode = decode_ref, .check = check, .combine = combine})};

}  // namespace
}  // namespace randomk

const Codec randomk_codec = {
    .name = "randomk",
    .doc = "values at random indices that all ranks share (Stich et al. 2018)",
    .params = randomk::kParams,
    .phases = randomk::kPhases,
    .traits = {.exact_ledger = true, .fixed_size = true, .contraction = randomk::contraction},
    .scratch = codec::no_scratch,
    .impls = randomk::kImpls};

}  // namespace tithe
