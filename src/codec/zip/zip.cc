// SPDX-License-Identifier: Apache-2.0
#include "codec/zip/zip.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "base/finite.h"
#include "codec/shared/common/block.h"
#include "codec/shared/common/payload.h"
#include "codec/typical.h"

namespace tithe {
namespace zip {

// ---- The reference

namespace {

// Code i of a body's bit planes.
unsigned code_at(const std::uint8_t* planes, unsigned width, std::size_t len, std::size_t i) {
  unsigned code = 0;
  for (unsigned k = 0; k < width; ++k) code |= (planes[k * plane_bytes(len) + i / 8] >> (i % 8) & 1U) << k;
  return code;
}

Counts counts_of(std::span<const std::uint32_t> bits) {
  std::array<std::size_t, kInf + 1> of{};
  for (const std::uint32_t b : bits) ++of[exponent_of(b)];
  Counts out{.largest = kInf};
  while (of[out.largest] == 0) --out.largest;
  see(out, bits.size(), [&](unsigned exponent) { return of[exponent]; });
  for (unsigned width = kMinWidth; width <= kMaxWidth; ++width)
    out.low[width - kMinWidth] = std::accumulate(of.begin(), of.begin() + span_of(width), std::size_t{0});
  return out;
}

std::size_t escapes_in(const std::uint8_t* codes, unsigned width, std::size_t len) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < plane_bytes(len); ++at) {
    unsigned all = 0xff;
    for (unsigned k = 0; k < width; ++k) all &= codes[k * plane_bytes(len) + at];
    count += static_cast<std::size_t>(std::popcount(all));
  }
  return count;
}

// Decodes the values of a block.
void values_of(const Cursor& at, std::span<float> out) {
  const std::size_t len = out.size();
  const Head head = Head::read(at.head);
  const std::uint8_t* escaped = at.body + head.code_bytes(len);
  const std::uint8_t* middle = escaped + head.escapes;
  for (std::size_t i = 0; i < len; ++i) {
    unsigned exponent = 0;
    if (head.width == kNone) {
      out[i] = 0.0F;
      continue;
    }
    if (head.width == kWhole) {
      exponent = at.body[i];
    } else {
      const unsigned code = code_at(at.body, head.width, len, i);
      exponent = code == span_of(head.width) ? *escaped++ : head.first + code;
    }
    const unsigned lower = head.no_lower ? 0U : wire::get<std::uint16_t>(middle + len + 2 * i);
    out[i] = std::bit_cast<float>(joined(exponent, middle[i], lower));
  }
}

}  // namespace

// One pass reads the values, whose histogram determines the window; a second pass writes codes, escapes, fractions
// and lower halves.
std::size_t encode_block(const EncodeInput& in, std::uint8_t* at, std::uint8_t* body, bool& finite) {
  const std::size_t len = in.n;
  std::array<std::uint32_t, kBlock> bits;
  std::uint32_t any = 0;
  for (std::size_t i = 0; i < len; ++i) {
    const float v = in.value(i);
    finite = finite && is_finite(v);
    bits[i] = std::bit_cast<std::uint32_t>(v);
    any |= bits[i];
    in.store_residual(i, v);
  }
  if (any == 0) {
    Head{}.write(at);
    return 0;
  }
  Head head = best_of(counts_of({bits.data(), len}), len);
  head.no_lower = lower_of(any) == 0;
  head.write(at);
  std::uint8_t* escaped = body + head.code_bytes(len);
  std::uint8_t* middle = escaped + head.escapes;
  std::fill(body, escaped, std::uint8_t{0});
  for (std::size_t i = 0; i < len; ++i) {
    const std::uint8_t exponent = exponent_of(bits[i]);
    if (head.width == kWhole) {
      body[i] = exponent;
    } else {
      const unsigned escape = span_of(head.width), behind = (exponent - head.first) & kInf;
      const unsigned code = std::min(behind, escape);
      for (unsigned k = 0; k < head.width; ++k) {
        std::uint8_t& to = body[k * plane_bytes(len) + i / 8];
        to = static_cast<std::uint8_t>(to | (code >> k & 1U) << (i % 8));
      }
      if (code == escape) *escaped++ = exponent;
    }
    middle[i] = middle_of(bits[i]);
    if (!head.no_lower) wire::put(middle + len + 2 * i, lower_of(bits[i]));
  }
  return head.body(len);
}

void decode_block(std::span<Cursor> from, const Merge& how, std::span<float> out) {
  std::array<float, kBlock> sum, own;
  for (std::size_t i = 0; i < out.size(); ++i) sum[i] = how.base ? how.base[i] : 0.0F;
  for (std::size_t p = 0; p < from.size(); ++p) {
    values_of(from[p], {own.data(), out.size()});
    from[p].skip(out.size());
    for (std::size_t i = 0; i < out.size(); ++i)
      sum[i] = p == 0 && how.base == nullptr ? own[i] : sum[i] + own[i];  // a single payload keeps its bits
  }
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = how.divide == 1.0F ? sum[i] : sum[i] / how.divide;
}

const Kernels kReference = {
    .encode = [](const EncodeInput& in, const float*, std::uint8_t* head, std::uint8_t* body,
                 bool& finite) { return encode_block(in, head, body, finite); },
    .decode = [](std::span<Cursor> from, const Merge& how, std::span<float> out,
                 bool) { decode_block(from, how, out); },
    .escapes = [](const std::uint8_t* codes, unsigned width) { return escapes_in(codes, width, kBlock); }};

// ---- Payloads

namespace {

std::size_t bound(const Settings&, std::size_t n) { return kHead * blocks_of(n) + 4 * n; }

bool is_head(const Head& head, std::uint8_t first_byte) {
  if ((first_byte & ~(15U | kNoLower)) != 0 || (head.width == kNone && head.no_lower)) return false;
  if (head.width >= kMinWidth && head.width <= kMaxWidth) return head.first + span_of(head.width) <= kInf + 1;
  return (head.width == kNone || head.width == kWhole) && head.first == 0 && head.escapes == 0;
}

// The conditions that make a block's encoding unique: padding is 0, the number of escapes is right, and no escape
// could have been a code of the window.
template <const Kernels& kWith>
const char* trouble(const Head& head, const std::uint8_t* body, std::size_t len) {
  if (head.width == kNone || head.width == kWhole) return nullptr;
  const std::size_t plane = plane_bytes(len);
  if (len % 8 != 0)
    for (unsigned k = 0; k < head.width; ++k)
      if (body[k * plane + plane - 1] >> (len % 8) != 0) return "bits past the last value";
  const std::size_t codes =
      len == kBlock ? kWith.escapes(body, head.width) : escapes_in(body, head.width, len);
  if (codes != head.escapes) return "another number of escapes than its count";
  const std::uint8_t* escaped = body + head.code_bytes(len);
  const auto inside = [&](std::uint8_t e) {
    return static_cast<std::uint8_t>(e - head.first) < span_of(head.width);
  };
  if (std::any_of(escaped, escaped + head.escapes, inside)) return "an escape within its window";
  return nullptr;
}

// Prefetches the codes of the blocks that check reads next. Their heads are not checked yet and may be invalid.
class SoonRead {
 public:
  SoonRead(std::size_t n, ByteView payload)
      : whole_(n / kBlock), payload_(payload), at_(kHead * blocks_of(n)) {
    for (int k = 0; k < 4; ++k) next();
  }
  void next() {
    if (block_ == whole_ || at_ + kCodes > payload_.size()) return;
    for (std::size_t k = 0; k < kCodes; k += 64) hwy::Prefetch(&payload_[at_ + k]);
    at_ += Head::read(&payload_[kHead * block_++]).body(kBlock);
  }

 private:
  static constexpr std::size_t kCodes = 448;  // bytes: 3 bits per value, and some escapes

  std::size_t whole_;
  ByteView payload_;
  std::size_t at_;
  std::size_t block_ = 0;
};

// A body's offset follows from the heads before it, so a wrong head is detected before its body is read.
template <const Kernels& kWith>
Status check(const Call&, std::size_t n, ByteView payload) {
  const auto refuse = [](std::size_t block, const char* why) {
    return Status(Code::kCorrupt, "zip: block " + std::to_string(block) + ": " + why);
  };
  const std::size_t heads = kHead * blocks_of(n);
  if (payload.size() < heads) return {Code::kCorrupt, "zip: shorter than the heads of its blocks"};
  SoonRead soon(n, payload);
  std::size_t at = heads;
  for (std::size_t block = 0; block * kBlock < n; ++block) {
    soon.next();
    const std::size_t len = std::min(kBlock, n - block * kBlock);
    const std::uint8_t* of = &payload[block * kHead];
    const Head head = Head::read(of);
    if (!is_head(head, *of)) return refuse(block, "unknown head");
    const std::size_t bytes = head.body(len);
    if (bytes > payload.size() - at) return refuse(block, "truncated");
    if (const char* why = trouble<kWith>(head, payload.data() + at, len)) return refuse(block, why);
    at += bytes;
  }
  return codec::check_size("zip", payload.size(), at);
}

template <const Kernels& kWith>
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(codec::check_room("zip", out.size(), bound(call.settings, in.n)));
  constexpr std::size_t kAhead = kBlock;
  std::uint8_t* head = out.data();
  std::uint8_t* body = head + kHead * blocks_of(in.n);
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock, head += kHead) {
    const EncodeInput part = block::part(in, first, std::min(kBlock, in.n - first));
    const float* ahead = first + kAhead + kBlock <= in.n ? part.grad + kAhead : part.grad;
    body += part.n == kBlock ? kWith.encode(part, ahead, head, body, finite)
                             : encode_block(part, head, body, finite);
  }
  return Encoded{static_cast<std::size_t>(body - out.data()), finite};
}

constexpr std::size_t kAtOnce = 8;  // payloads
constexpr std::size_t kPastCaches = std::size_t{1} << 22;

// Decodes block by block over up to kAtOnce payloads, each with its own cursor.
template <const Kernels& kWith>
void decode_some(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  std::array<Cursor, kAtOnce> each;
  for (std::size_t p = 0; p < payloads.size(); ++p)
    each[p] = {payloads[p].data(), payloads[p].data() + kHead * blocks_of(out.size()),
               payloads[p].data() + payloads[p].size()};
  const std::span<Cursor> from(each.data(), payloads.size());
  const bool non_temporal = how.base == nullptr && out.size() >= kPastCaches &&
                            reinterpret_cast<std::uintptr_t>(out.data()) % 64 == 0;
  for (std::size_t first = 0; first < out.size(); first += kBlock) {
    const std::span<float> to = out.subspan(first, std::min(kBlock, out.size() - first));
    const Merge part = codec::merge_from(how, first);
    if (to.size() == kBlock)
      kWith.decode(from, part, to, non_temporal);
    else
      decode_block(from, part, to);
  }
  if (non_temporal) hwy::FlushStream();
}

template <const Kernels& kWith>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  TITHE_TRY(codec::check_all(check<kWith>, call, payloads, out.size()));
  codec::merge_in_groups(kAtOnce, payloads, how, out, decode_some<kWith>);
  return {};
}

double contraction(const Settings&, std::size_t) { return 0; }
bool exact_constants(const Settings&) { return true; }

constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "values", .laws = kLaws, .bound = bound}};
template <const Kernels& kWith>
constexpr Impl kImpl = {.encode = encode<kWith>, .decode = decode<kWith>, .check = check<kWith>};
constexpr Impl kImpls[] = {codec::simd(kImpl<kSimd>), codec::reference(kImpl<kReference>)};

}  // namespace
}  // namespace zip

const Codec zip_codec = {.name = "zip",
                         .doc = "all values, unchanged, exponents in 2 to 4 bits each",
                         .params = {},
                         .phases = zip::kPhases,
                         .traits = {.exact_ledger = true,
                                    .lossless = true,
                                    .contraction = zip::contraction,
                                    .exact_constants = zip::exact_constants},
                         .scratch = codec::no_scratch,
                         .impls = zip::kImpls};

// Normally distributed values: exponents take 3 bits and an occasional escape.
std::size_t zip_typical(const Settings&, std::size_t n) {
  return zip::kHead * zip::blocks_of(n) + static_cast<std::size_t>(3.4 * static_cast<double>(n));
}

}  // namespace tithe
