// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/int_sum/int_fields.h"

#include "codec/shared/common/payload.h"

namespace tithe::int_fields {
namespace {

std::uint32_t largest(const std::uint8_t* words, std::size_t count, unsigned bits) {
  std::uint32_t most = 0;
  for (std::size_t w = 0; w < count; ++w)
    most = std::max(most, largest_of(wire::get<std::uint32_t>(words + 4 * w), bits));
  return most;
}

void add_words(std::uint8_t* acc, const std::uint8_t* in, std::size_t count) {
  for (std::size_t w = 0; w < count; ++w)
    wire::put(acc + 4 * w, wire::get<std::uint32_t>(acc + 4 * w) + wire::get<std::uint32_t>(in + 4 * w));
}

// True if the fields after the last integer are 0.
bool ends_clean(const std::uint8_t* payload, std::size_t n, unsigned bits) {
  const std::size_t rest = n % (kRow * fields(bits));
  for (std::size_t j = 0; j < std::min(kRow, rest); ++j) {
    const std::size_t used = (rest - j + kRow - 1) / kRow * bits;
    const FieldOffset at(n - rest + j, bits);
    if (used < 32 && wire::get<std::uint32_t>(payload + at.byte) >> used != 0) return false;
  }
  return true;
}

void pack(const std::uint32_t* numbers, std::size_t first, std::size_t count, unsigned bits,
          std::uint8_t* payload) {
  for (std::size_t i = 0; i < count; ++i) put(payload, first + i, bits, numbers[i]);
}

void unpack(const std::uint8_t* payload, std::size_t first, std::size_t count, unsigned bits,
            std::uint32_t* numbers) {
  for (std::size_t i = 0; i < count; ++i) numbers[i] = get(payload, first + i, bits);
}

}  // namespace

const Kernels kReference = {.largest = largest, .add = add_words, .pack = pack, .unpack = unpack};

// The width depends on the number of ranks that the sender expected, so a range of widths is valid. No field may
// exceed `added` times the largest integer of one rank.
Status check(const Kernels& with, const Form& form, ByteView payload) {
  const auto corrupt = [&](const char* what) {
    return Status(Code::kCorrupt, std::string(form.codec) + ": " + what);
  };
  if (payload.size() < kHead) return corrupt("the head of int fields is missing");
  const Head head = head_of(payload);
  if (head.added == 0 || head.added > form.most) return corrupt("payloads of more ranks than allowed");
  if (head.bits < bits_for(form.top, head.added) || head.bits > bits_for(form.top, form.most) ||
      payload[3] != 0)
    return corrupt("int fields of another width");
  TITHE_TRY(codec::check_size(form.codec, payload.size(), bytes(form.n, head.bits)));
  if (!ends_clean(payload.data(), form.n, head.bits)) return corrupt("a bit outside the int fields");
  if (with.largest(payload.data() + kHead, words(form.n, head.bits), head.bits) > head.added * form.top)
    return corrupt("an int field beyond its sum");
  return {};
}

Status add(const Kernels& with, const Form& form, const Call& call, Bytes acc, ByteView in) {
  TITHE_TRY(codec::check_size(form.codec, in.size(), acc.size()));
  TITHE_TRY(check(with, form, in));
  const Head mine = head_of(acc), other = head_of(in);
  if (mine.bits != other.bits || acc[3] != 0)
    return {Code::kCorrupt, std::string(form.codec) + ": int fields of two widths"};
  const unsigned added = mine.added + other.added;
  TITHE_TRY(codec::check_ranks(form.codec, call, added));
  if (added > form.most || bits_for(form.top, added) > mine.bits)
    return {Code::kUnsupported, std::string(form.codec) + ": " + std::to_string(added) +
                                    " payloads are added, more than their counts state"};
  put_head(acc.data(), {added, mine.bits});
  with.add(acc.data() + kHead, in.data() + kHead, words(form.n, mine.bits));
  return {};
}

Status count(const Form& form, const Call& call, Bytes acc, ByteView in) {
  const unsigned workers = wire::get<std::uint16_t>(acc.data()) + wire::get<std::uint16_t>(in.data());
  TITHE_TRY(codec::check_ranks(form.codec, call, workers));
  if (workers > form.most)
    return {Code::kUnsupported, std::string(form.codec) + ": " + std::to_string(workers) +
                                    " ranks or more; raise workers=" + std::to_string(form.most)};
  wire::put(acc.data(), static_cast<std::uint16_t>(workers));
  return {};
}

}  // namespace tithe::int_fields
