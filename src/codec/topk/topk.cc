// SPDX-License-Identifier: Apache-2.0
#include "codec/topk/topk.h"

#include <cstring>

#include "codec/shared/common/block.h"
#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/largest.h"
#include "codec/shared/sparse/sparsifier.h"

namespace tithe {
namespace topk {
namespace {

enum Param : std::size_t { kRatio, kForm, kIndices, kBlock };
constexpr ParamSpec kParams[] = {
    {"ratio", 0.01, 1e-6, 1, "fraction of the values that is sent", {}, Role::kRatio},
    sparse::kValuesParam,
    sparse::kIndicesParam,
    whole_number({"block", 0, 0, 65536,
                  "values per block, whose largest are sent; 0: the largest of the whole tensor"})};

sparse::Form form(const Settings& s) { return sparse::form_of(s, kForm); }

// The block length for n values; 1 for n = 0, since it is used as a divisor.
std::size_t block_of(const Settings& s, std::size_t n) {
  const auto block = static_cast<std::size_t>(s[kBlock]);
  return block == 0 || block > n ? std::max<std::size_t>(1, n) : block;
}
std::size_t most(const Settings& s, std::size_t n) {
  const std::size_t block = block_of(s, n);
  return n / block * sparse::count_of(s[kRatio], block) + sparse::count_of(s[kRatio], n % block);
}
std::size_t bound(const Settings& s, std::size_t n) { return sparse::bound(form(s), most(s, n), n); }

// The unsent values hold at most their share of the energy; a rounded form also loses some energy of the sent values.
// The last block may be shorter, and its share larger.
double contraction(const Settings& s, std::size_t n) {
  const std::size_t block = block_of(s, n);
  const double sent = static_cast<double>(sparse::count_of(s[kRatio], block)) / static_cast<double>(block);
  return 1 - sent * sparse::kKeptEnergy[static_cast<std::size_t>(form(s).values)];
}

Status check(const Call& call, std::size_t n, ByteView payload) {
  return sparse::check("topk", n, most(call.settings, n), payload);
}

Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(sparse::check_values("topk", in.n));
  TITHE_TRY(codec::check_room("topk", out.size(), bound(call.settings, in.n)));
  return largest::send_ref(form(call.settings), call.settings[kRatio], block_of(call.settings, in.n), in,
                           out);
}

// Scratch: one selection's needs; the pairs of one block; and all values, which are written after all indices.
std::size_t choose_scratch(const Settings& s, std::size_t n) {
  const std::size_t block = block_of(s, n);
  const std::size_t most =
      std::max(largest::scratch(s[kRatio], block), largest::scratch(s[kRatio], n % block));
  return (most + 63) / 64 * 64;
}
std::size_t own_scratch(const Settings& s, std::size_t n) {
  const std::size_t block = block_of(s, n);
  return choose_scratch(s, n) +
         (block < n ? sparse::bytes(sparse::count_of(s[kRatio], block)) + 4 * most(s, n) : 0);
}
std::size_t scratch(const Settings& s, std::size_t n) {
  return sparse::scratch(form(s), own_scratch(s, n), most(s, n));
}

// Block by block.
Result<Encoded> encode_blocks(const Call& call, const EncodeInput& in, Bytes out) {
  const std::size_t block = block_of(call.settings, in.n);
  const Bytes pairs = call.scratch.subspan(choose_scratch(call.settings, in.n));
  std::uint8_t* const index = out.data() + sparse::kHead;
  std::uint8_t* const value = &pairs[sparse::bytes(sparse::count_of(call.settings[kRatio], block))];
  std::size_t count = 0;
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += block) {
    const EncodeInput part = block::part(in, first, std::min(block, in.n - first));
    const Result<Encoded> done = largest::choose_simd(call, call.settings[kRatio], part, pairs);
    if (!done.ok()) return done;
    finite = finite && done->finite;
    const sparse::Pairs chosen(pairs);
    for (std::size_t j = 0; j < chosen.count(); ++j)
      wire::put(index + 4 * (count + j), static_cast<std::uint32_t>(first + chosen.index(j)));
    std::memcpy(value + 4 * count, chosen.values(), 4 * chosen.count());
    count += chosen.count();
  }
  std::memcpy(index + 4 * count, value, 4 * count);
  wire::put(out.data(), static_cast<std::uint32_t>(count));
  return Encoded{.bytes = sparse::bytes(count), .finite = finite};
}

Result<Encoded> encode_plain(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(sparse::check_values("topk", in.n));
  TITHE_TRY(codec::check_room("topk", out.size(), bound(call.settings, in.n)));
  TITHE_TRY(codec::check_scratch("topk", call.scratch.size(), scratch(call.settings, in.n)));
  if (block_of(call.settings, in.n) >= in.n)
    return largest::choose_simd(call, call.settings[kRatio], in, out);
  return encode_blocks(call, in, out);
}

constexpr Phase kPhases[] = {{.name = "pairs", .laws = sparse::kLaws, .bound = bound}};
constexpr std::span<const Impl> kImpls =
    sparse::kImpls<topk_codec, kForm, check, encode, encode_plain, own_scratch>;

}  // namespace

}  // namespace topk

const Codec topk_codec = {.name = "topk",
                          .doc = "the largest values, chosen exactly (Aji and Heafield 2017)",
                          .params = topk::kParams,
                          .phases = topk::kPhases,
                          .traits = {.exact_ledger = true, .selects = true, .contraction = topk::contraction},
                          .scratch = topk::scratch,
                          .impls = topk::kImpls};

}  // namespace tithe
