// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays and tensors as Python hands them over. What is not as it must be raises ValueError or TypeError.
#include <nanobind/ndarray.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core.h"
#include "tithe/session.h"

namespace tithe::python {

using AnyArray = nb::ndarray<nb::c_contig, nb::device::cpu>;
using FloatsOut = nb::ndarray<float, nb::c_contig, nb::device::cpu>;

DType dtype_of(std::string_view key, nb::dlpack::dtype d);
std::string key_of(nb::handle key);
AnyArray array_of(std::string_view key, nb::handle given);
// The same where it may lie on a GPU. A bucket's arrays lie in one place, which `origin` says from the first one on.
using ArrayAnywhere = nb::ndarray<nb::c_contig>;
ArrayAnywhere array_anywhere(std::string_view key, nb::handle given, std::optional<Origin>& origin);

// False for memory that is handed over without strides, as NumPy's dates do it: nanobind follows the null pointer.
bool has_strides(nb::handle given);
// An argument that must be such an array; TypeError otherwise.
template <typename Array>
Array array_argument(nb::handle given, bool convert) {
  Array array;
  if (!has_strides(given) || !nb::try_cast(given, array, convert)) throw nb::next_overload();
  return array;
}

// Tensors that lie back to back at one address, as in a DDP bucket, or some of those. Made once, used every step.
struct Layout {
  // rows may be empty. ValueError for a type that does not travel, or numbers that do not fit each other.
  Layout(std::vector<std::string> names, std::vector<std::size_t> counts, std::string_view type,
         std::vector<std::size_t> row_sizes);
  // The same array, with the tensors of these numbers alone.
  Layout pick(const std::vector<std::size_t>& which) const;
  std::vector<std::string> keys;
  std::vector<std::size_t> sizes;
  std::vector<std::size_t> rows;    // Tensor::row
  std::vector<std::size_t> firsts;  // where each begins, values
  std::size_t values = 0;           // of the whole array
  DType dtype;
  bool side = false;  // Tensor::side
};

}  // namespace tithe::python
