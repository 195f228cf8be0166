// SPDX-License-Identifier: Apache-2.0
// randomk: k values at places that all ranks draw alike, so that payloads add up as arrays (Wangni et al.,
// "Gradient Sparsification for Communication-Efficient Distributed Optimization", 2018; Stich et al., "Sparsified SGD
// with Memory", 2018). No index travels: the key of the draws stands in front of the values.
//
//   k        max(1, ceil(ratio * n))
//   places   one of each of k strata of n / k values (randomk.h), by (shared seed, round, tensor, chunk): a value is
//            sent with probability 1 / (length of its stratum), at least 1 / ceil(n / k). So
//              E |x - sent|^2 <= (1 - 1 / ceil(n / k)) |x|^2
//            as for k places drawn out of n at once, but in order, and no place lies far from the next.
//   values   as they are, not scaled by n / k: it is the residual that makes up for what is not sent
//
// combine adds value by value in fp32 and writes the sums in the payloads' form; what that rounds off goes to left.
//
// Layout   u64 key | u32 k | u8 values | 3 x u8 0 | value array (codec/sparse_values.h)
#include "codec/randomk/randomk.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/finite.h"
#include "codec/leave.h"
#include "codec/raw.h"
#include "codec/registry.h"
#include "codec/sparse.h"

namespace tithe {
namespace randomk {
namespace {

using sparse::kValueBlock;
using sparse::ValueForm;

enum Param : std::size_t { kRatio, kValues };
constexpr ParamSpec kParams[] = {{"ratio", 0.01, 1e-6, 1, "fraction of the values that is sent"},
                                 sparse::kFixedValuesParam};

enum Offset : std::size_t { kAtCount = 8, kAtForm = 12, kAtZeros = 13, kHead = 16 };

constexpr std::size_t kMerged =
    8192;  // values that all payloads are added to before the next: they stay there too

std::size_t most(const Settings& s, std::size_t n) { return sparse::count_of(s[kRatio], n); }
ValueForm form(const Settings& s) { return static_cast<ValueForm>(static_cast<int>(s[kValues])); }

std::size_t bound(const Settings& s, std::size_t n) {
  return kHead + sparse::value_bytes(form(s), most(s, n));
}

// On average over the draws; a rounded form takes some of what is sent.
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

Status check(const Settings& s, std::size_t n, ByteView payload) {
  TITHE_TRY(sparse::check_values("randomk", n));
  const auto corrupt = [](const std::string& why) { return Status(Code::kCorrupt, "randomk: " + why); };
  if (payload.size() < kHead)
    return corrupt("payload of " + std::to_string(payload.size()) + " bytes has no head");
  const std::size_t count = wire::get<std::uint32_t>(payload.data() + kAtCount);
  if (count > most(s, n))
    return corrupt(std::to_string(count) + " values, at most " + std::to_string(most(s, n)) +
                   " are sent of " + std::to_string(n));
  if (payload[kAtForm] > sparse::kLastFixedForm) return corrupt("unknown form");
  for (std::size_t i = kAtZeros; i < kHead; ++i)
    if (payload[i] != 0) return corrupt("unknown form");
  const View view(payload);
  TITHE_TRY(codec::check_size("randomk", payload.size(), kHead + sparse::value_bytes(view.values, count)));
  return sparse::values_hold(view.values, payload.subspan(kHead), count)
             ? Status()
             : corrupt("a code that no writer writes");
}

// The places of a payload, drawn a thousand at a time.
class Listed {
 public:
  Listed(std::uint64_t key, std::size_t n, std::size_t count) : key_(key), n_(n), count_(count) {}
  // The next places that are below `end`, or the first of them; none: there are no more.
  std::span<const std::uint32_t> below(std::size_t end) {
    if (next_ == held_) {
      drawn_ += held_;
      next_ = 0;
      held_ = std::min(kMost, count_ - drawn_);
      list_places(key_, n_, count_, drawn_, {place_.data(), held_});
    }
    const std::size_t first = next_;
    while (next_ < held_ && place_[next_] < end) ++next_;
    return {place_.data() + first, next_ - first};
  }

 private:
  static constexpr std::size_t kMost = 1024;
  std::uint64_t key_;
  std::size_t n_;
  std::size_t count_;
  std::array<std::uint32_t, kMost> place_;
  std::size_t held_ = 0;
  std::size_t next_ = 0;
  std::size_t drawn_ = 0;  // before those held
};

// Writes a payload, values in their order, and leaves what their form rounds off.
class Writer {
 public:
  Writer(const Call& call, const Carry& in, Bytes out)
      : in_(in),
        form_(form(call.settings)),
        key_(rng_key(call.shared_seed, call.round, call.tensor, call.chunk, call.phase)),
        out_(out.data()) {
    wire::put(out_, key_);
    wire::put(out_ + kAtCount, static_cast<std::uint32_t>(most(call.settings, in.n)));
    out_[kAtForm] = static_cast<std::uint8_t>(form_);
    std::fill(out_ + kAtZeros, out_ + kHead, std::uint8_t{0});
  }
  std::uint64_t key() const { return key_; }

  void send(std::uint32_t place, float v) {
    place_[held_] = place;
    value_[held_++] = v + 0.0F;  // -0 becomes +0, as it would in a sum
    if (held_ == kValueBlock) flush();
  }
  // Values that have been left whole.
  void send_left(std::span<const std::uint32_t> places) {
    if (form_ != ValueForm::kF32) {
      for (const std::uint32_t i : places) send(i, codec::left_value(in_, i));
      return;
    }
    std::uint8_t* to = out_ + kHead + 4 * written_;
    for (const std::uint32_t i : places) {
      wire::put(to, codec::left_value(in_, i) + 0.0F), to += 4;
      if (in_.left) in_.left[i] = 0.0F;
    }
    written_ += places.size();
  }
  std::size_t finish() {
    flush();
    return kHead + sparse::value_bytes(form_, written_);
  }

 private:
  void flush() {
    std::uint8_t* array = out_ + kHead + sparse::value_bytes(form_, written_);
    sparse::write_values(form_, {value_.data(), held_}, array);
    if (in_.left)
      for (std::size_t k = 0; k < held_; ++k)
        in_.left[place_[k]] = value_[k] - sparse::value_at(form_, array, k);
    written_ += held_;
    held_ = 0;
  }

  const Carry& in_;
  ValueForm form_;
  std::uint64_t key_;
  std::uint8_t* out_;
  std::array<std::uint32_t, kValueBlock> place_{};
  std::array<float, kValueBlock> value_{};
  std::size_t held_ = 0;
  std::size_t written_ = 0;
};

Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("randomk", in.n));
  TITHE_TRY(codec::check_room("randomk", out.size(), bound(call.settings, in.n)));
  std::vector<float> values(in.n);
  bool finite = true;
  for (std::size_t i = 0; i < in.n; ++i) {
    values[i] = in.take(i);
    finite = finite && is_finite(values[i]);
    in.leave(i, 0.0F);
  }
  Writer writer(call, in, out);
  for (Places p(writer.key(), in.n, most(call.settings, in.n)); !p.done(); p.next())
    writer.send(p.place(), values[p.place()]);
  return Encoded{.bytes = writer.finish(), .finite = finite};
}

Result<Encoded> encode_fast(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("randomk", in.n));
  TITHE_TRY(codec::check_room("randomk", out.size(), bound(call.settings, in.n)));
  Writer writer(call, in, out);
  Listed places(writer.key(), in.n, most(call.settings, in.n));
  const bool finite = codec::leave_and_pick(in, [&](std::size_t end) {
    for (auto some = places.below(end); !some.empty(); some = places.below(end)) writer.send_left(some);
  });
  return Encoded{.bytes = writer.finish(), .finite = finite};
}

Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  TITHE_TRY(codec::check_all(randomk_codec, call, payloads, out.size()));
  if (merge.base == nullptr)
    std::fill(out.begin(), out.end(), 0.0F);
  else if (merge.base != out.data())
    std::copy_n(merge.base, out.size(), out.begin());
  for (const ByteView payload : payloads) {
    const View view(payload);
    std::size_t j = 0;
    for (Places p(view.key, out.size(), view.count); !p.done(); p.next()) out[p.place()] += view.value(j++);
  }
  if (merge.divide != 1.0F)
    for (float& v : out) v /= merge.divide;
  return {};
}

// Part after part of the output.
Status decode_fast(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
                   std::span<float> out) {
  TITHE_TRY(codec::check_all(randomk_codec, call, payloads, out.size()));
  struct Read {
    View view;
    Listed places;
    std::size_t j = 0;
  };
  std::vector<Read> all;
  for (const ByteView payload : payloads) {
    const View view(payload);
    all.push_back({view, Listed(view.key, out.size(), view.count)});
  }
  for (std::size_t start = 0; start < out.size(); start += kMerged) {
    const std::size_t end = std::min(start + kMerged, out.size());
    if (merge.base == nullptr)
      std::fill_n(out.data() + start, end - start, 0.0F);
    else if (merge.base != out.data())
      std::copy_n(merge.base + start, end - start, out.data() + start);
    for (Read& p : all)
      for (auto some = p.places.below(end); !some.empty(); some = p.places.below(end)) {
        const std::uint8_t* from = p.view.array + 4 * p.j;
        if (p.view.values == ValueForm::kF32)
          for (const std::uint32_t i : some) out[i] += wire::get<float>(from), from += 4;
        else
          for (std::size_t k = 0; k < some.size(); ++k) out[some[k]] += p.view.value(p.j + k);
        p.j += some.size();
      }
    if (merge.divide != 1.0F)
      for (float& v : out.subspan(start, end - start)) v /= merge.divide;
  }
  return {};
}

Status combine(const Settings& s, std::size_t n, Bytes acc, ByteView in, float* left) {
  TITHE_TRY(check(s, n, acc));
  TITHE_TRY(check(s, n, in));
  if (std::memcmp(acc.data(), in.data(), kHead) != 0)
    return {Code::kCorrupt, "randomk: payloads of other places or another form cannot be added"};
  const View a(acc);
  const View b(in);
  const bool rounds = left != nullptr && a.values != ValueForm::kF32;
  Places p(a.key, n, a.count);
  for (std::size_t first = 0; first < a.count; first += kValueBlock) {
    const std::size_t length = std::min(kValueBlock, a.count - first);
    std::array<float, kValueBlock> had{};
    std::array<float, kValueBlock> sum{};
    for (std::size_t k = 0; k < length; ++k) {
      had[k] = a.value(first + k);
      sum[k] = had[k] + b.value(first + k);
    }
    sparse::write_values(a.values, {sum.data(), length},
                         acc.data() + kHead + sparse::value_bytes(a.values, first));
    for (std::size_t k = 0; rounds && k < length; ++k, p.next()) {
      const float sent = a.value(first + k);
      left[p.place()] += is_finite(sum[k]) ? sum[k] - sent : had[k] - sent + b.value(first + k);
    }
  }
  return {};
}

constexpr Law kLaws[] = {Law::kSum, Law::kDecode};
constexpr Phase kPhases[] = {
    {.name = "values", .laws = kLaws, .bound = bound, .check = check, .combine = combine}};
constexpr Impl kImpls[] = {
    {.name = "simd", .usable = codec::with_simd, .encode = encode_fast, .decode = decode_fast},
    {.name = "ref", .usable = codec::always, .encode = encode, .decode = decode}};

}  // namespace
}  // namespace randomk

const Codec randomk_codec = {
    .id = CodecId::randomk,
    .name = "randomk",
    .doc = "values at random places that all ranks share (Stich et al. 2018)",
    .params = randomk::kParams,
    .phases = randomk::kPhases,
    .traits = {.exact_ledger = true, .fixed_size = true, .contraction = randomk::contraction},
    .scratch = codec::no_scratch,
    .impls = randomk::kImpls};

}  // namespace tithe
