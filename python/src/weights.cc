// SPDX-License-Identifier: Apache-2.0
// The lossless difference of 16-bit weights (codec/shared/delta/delta.h), on arrays of their bits.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string_view.h>

#include <memory>
#include <string_view>

#include "codec/shared/delta/delta.h"
#include "core.h"

namespace tithe::python {
namespace {

using Bits = nb::ndarray<const std::uint16_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using BitsOut = nb::ndarray<std::uint16_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Words = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using WordsOut = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

delta::Format format_of(std::string_view name) {
  if (name == "bfloat16") return delta::Format::kBf16;
  if (name == "float16") return delta::Format::kFp16;
  throw nb::value_error("dtype must be 'bfloat16' or 'float16'");
}

void check_sizes(std::size_t before, std::size_t now, std::size_t words) {
  if (before != now || words < delta::words(delta::bound(now)))
    throw nb::value_error(
        "before and now must have the same size, and words must have delta_words(size) values");
}

std::size_t encode(std::string_view dtype, const Bits& before, const Bits& now, const WordsOut& words) {
  const delta::Format format = format_of(dtype);
  check_sizes(before.size(), now.size(), words.size());
  const nb::gil_scoped_release free;
  const std::size_t most = delta::bound(now.size());
  const auto room = std::make_unique_for_overwrite<std::uint8_t[]>(most);
  const std::size_t bytes =
      delta::encode(format, {before.data(), before.size()}, {now.data(), now.size()}, {room.get(), most});
  delta::pack({room.get(), bytes}, {words.data(), words.size()});
  return bytes;
}

void decode(std::string_view dtype, const Bits& before, const Words& words, const BitsOut& now) {
  const delta::Format format = format_of(dtype);
  check_sizes(before.size(), now.size(), words.size());
  Status status;
  {
    const nb::gil_scoped_release free;
    const std::size_t most = delta::bound(now.size());
    const auto room = std::make_unique_for_overwrite<std::uint8_t[]>(most);
    const Result<std::size_t> bytes = delta::unpack({words.data(), words.size()}, {room.get(), most});
    status = bytes.ok() ? delta::decode(format, {before.data(), before.size()}, {room.get(), *bytes},
                                        {now.data(), now.size()})
                        : bytes.status();
  }
  check(status);
}

}  // namespace

void bind_weights(nb::module_& m) {
  m.def(
      "delta_words", [](std::size_t n) { return delta::words(delta::bound(n)); }, nb::arg("n"),
      "The most float32 words of the difference of n weights.");
  m.def(
      "delta_encode", &encode, nb::arg("dtype"), nb::arg("before"), nb::arg("now"), nb::arg("words"),
      "Writes the difference of two versions of weights, given as uint16 bits, to words. Returns its bytes.");
  m.def("delta_decode", &decode, nb::arg("dtype"), nb::arg("before"), nb::arg("words"), nb::arg("now"),
        "Writes the weights to now, which may be before. Raises tithe.Error (mismatch) if before differs "
        "from the sender's.");
}

}  // namespace tithe::python
