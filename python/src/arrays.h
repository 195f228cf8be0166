// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays and tensors from Python. Invalid ones raise ValueError or TypeError.
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
// Likewise, for arrays that may be on a GPU. All arrays of a bucket must be in one place, which the first one stores in
// `origin`.
using ArrayAnywhere = nb::ndarray<nb::c_contig>;
ArrayAnywhere array_anywhere(std::string_view key, nb::handle given, std::optional<Origin>& origin);

// False for a buffer without strides, such as NumPy's dates: nanobind would dereference the null pointer.
bool has_strides(nb::handle given);
// Converts an argument to this array type, or raises TypeError.
template <typename Array>
Array array_argument(nb::handle given, bool convert) {
  Array array;
  if (!has_strides(given) || !nb::try_cast(given, array, convert)) throw nb::next_overload();
  return array;
}

// Tensors that are contiguous in one array, as in a DDP bucket, or some of them. Created once and used in every step.
struct Layout {
  // `rows` may be empty. ValueError for an unsupported type, or numbers that do not match.
  Layout(std::vector<std::string> names, std::vector<std::size_t> counts, std::string_view type,
         std::vector<std::size_t> row_sizes);
  // The same array with only these tensors.
  Layout pick(const std::vector<std::size_t>& which) const;
  std::vector<std::string> keys;
  std::vector<std::size_t> sizes;
  std::vector<std::size_t> rows;    // Tensor::row
  std::vector<std::size_t> firsts;  // offset of each tensor, in values
  std::size_t values = 0;           // size of the whole array
  DType dtype;
  bool side = false;  // Tensor::side
};

}  // namespace tithe::python
