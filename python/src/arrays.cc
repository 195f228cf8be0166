// SPDX-License-Identifier: Apache-2.0
// Conversion of Python arrays through nanobind's DLPack and buffer protocols, with tithe's own error texts.
#include "arrays.h"

#include <nanobind/stl/string.h>

#include <utility>

#include "tithe/limits.h"

namespace tithe::python {
namespace {

DType dtype_named(std::string_view text) {
  if (text == "float32") return DType::kF32;
  if (text == "bfloat16") return DType::kBF16;
  if (text == "float16") return DType::kF16;
  raise({Code::kInvalid, "dtype " + std::string(text) + ": use float32, bfloat16 or float16"});
}

}  // namespace

DType dtype_of(std::string_view key, const nb::dlpack::dtype d) {
  const auto code = static_cast<nb::dlpack::dtype_code>(d.code);
  if (code == nb::dlpack::dtype_code::Float && d.bits == 32) return DType::kF32;
  if (code == nb::dlpack::dtype_code::Float && d.bits == 16) return DType::kF16;
  if (code == nb::dlpack::dtype_code::Bfloat && d.bits == 16) return DType::kBF16;
  raise({Code::kInvalid, "'" + std::string(key) + "': use float32, bfloat16 or float16"});
}

std::string key_of(const nb::handle key) {
  std::string text;
  if (!PyUnicode_Check(key.ptr()) || !nb::try_cast(key, text, false))
    throw_as(PyExc_TypeError,
             "a key must be a str that can be encoded in UTF-8, not " + std::string(nb::repr(key).c_str()));
  return text;
}

bool has_strides(const nb::handle given) {
  Py_buffer view;
  if (PyObject_CheckBuffer(given.ptr()) == 0) return true;
  if (PyObject_GetBuffer(given.ptr(), &view, PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();  // the actual request reports the error
    return true;
  }
  const bool there = view.ndim == 0 || view.strides != nullptr;
  PyBuffer_Release(&view);
  return there;
}

AnyArray array_of(std::string_view key, const nb::handle given) {
  AnyArray array;
  if (!has_strides(given) || !nb::try_cast(given, array, false))
    throw_as(PyExc_ValueError,
             "'" + std::string(key) +
                 "': needs a writable, C-contiguous array in host memory, in this machine's byte order");
  return array;
}

// The array's values are valid once the default stream reaches this point, as __dlpack__() without a stream guarantees.
ArrayAnywhere array_anywhere(std::string_view key, const nb::handle given, std::optional<Origin>& origin) {
  ArrayAnywhere array;
  if (!has_strides(given) || !nb::try_cast(given, array, false))
    throw_as(
        PyExc_ValueError,
        "'" + std::string(key) +
            "': needs a writable, C-contiguous array in host memory or on a CUDA GPU, in this machine's byte "
            "order");
  const bool there = array.device_type() == nb::device::cuda::value;
  if (!there && array.device_type() != nb::device::cpu::value)
    throw_as(PyExc_ValueError, "'" + std::string(key) + "': is neither in host memory nor on a CUDA GPU");
  const Origin mine{.device = there ? array.device_id() : -1};
  const auto place = [](int device) { return device < 0 ? "host memory" : "GPU " + std::to_string(device); };
  if (!origin) origin = mine;
  if (origin->device != mine.device)
    throw_as(PyExc_ValueError, "'" + std::string(key) + "': is in " + place(mine.device) +
                                   ", and other tensors of its " + "bucket in " + place(origin->device) +
                                   ": use a separate bucket for each device");
  return array;
}

Layout::Layout(std::vector<std::string> names, std::vector<std::size_t> counts, std::string_view type,
               std::vector<std::size_t> row_sizes)
    : keys(std::move(names)), sizes(std::move(counts)), rows(std::move(row_sizes)), dtype(dtype_named(type)) {
  if (rows.empty()) rows.resize(keys.size());
  if (keys.size() != sizes.size() || keys.size() != rows.size())
    raise({Code::kInvalid, "a layout needs one size per key, and one row length per key or none"});
  for (const std::size_t size : sizes) {
    firsts.push_back(values);
    if (size > kMaxValues || (values += size) > kMaxValues)
      raise({Code::kInvalid, "a layout of more than " + std::to_string(kMaxValues) + " values"});
  }
}

Layout Layout::pick(const std::vector<std::size_t>& which) const {
  Layout some = *this;
  for (std::size_t i = 0; i < which.size(); ++i) {
    const std::size_t k = which[i];
    if (k >= keys.size() || (i > 0 && k <= which[i - 1]))
      raise({Code::kInvalid, "the indices must be increasing and within the layout"});
    some.keys[i] = keys[k];
    some.sizes[i] = sizes[k];
    some.rows[i] = rows[k];
    some.firsts[i] = firsts[k];
  }
  some.keys.resize(which.size());
  some.sizes.resize(which.size());
  some.rows.resize(which.size());
  some.firsts.resize(which.size());
  return some;
}

}  // namespace tithe::python
