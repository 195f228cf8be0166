// SPDX-License-Identifier: Apache-2.0
#pragma once
// Declarations that the extension's files share. Only this file converts a Status to a Python exception.
#include <nanobind/nanobind.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tithe/session.h"
#include "tithe/status.h"

namespace tithe::python {

namespace nb = nanobind;

// kInvalid, kTooSmall and kUnsupported raise ValueError. All others raise tithe.Error (a RuntimeError) with `peer`
// (rank or None), `code`, and the cure at the end of the text. Needs the GIL.
[[noreturn]] void raise(const Status& status);

// Raises a Python exception of this type. The text may contain any bytes.
[[noreturn]] void throw_as(PyObject* type, std::string_view text);

inline void check(const Status& status) {
  if (!status.ok()) raise(status);
}

template <typename T>
T unwrap(Result<T> result) {
  if (!result.ok()) raise(result.status());
  return std::move(*result);
}

inline nb::bytes to_bytes(ByteView v) { return nb::bytes(v.data(), v.size()); }
inline ByteView view_of(const nb::bytes& b) { return {static_cast<const std::uint8_t*>(b.data()), b.size()}; }
// The view of a bytes object; TypeError with this text for any other object.
inline ByteView view_of(nb::handle given, const char* wrong) {
  if (!PyBytes_Check(given.ptr())) throw_as(PyExc_TypeError, wrong);
  return view_of(nb::borrow<nb::bytes>(given));
}

// ValueError for a value that is not a duration: NaN, or beyond 30 years.
std::chrono::milliseconds to_milliseconds(std::string_view name, double seconds);

// Names of the ranks that a session has lost so far; empty after it is closed. Thread-safe.
struct MemberMonitor {
  std::function<std::vector<std::string>()> lost;
};
MemberMonitor member_monitor(const std::shared_ptr<Session>& session, std::vector<std::string> members);

void bind_codecs(nb::module_& m);
void bind_interrupt(nb::module_& m);
void bind_options(nb::module_& m);
void bind_rejoin(nb::module_& m);
void bind_choices(nb::module_& m);
void bind_session(nb::module_& m);
void bind_weights(nb::module_& m);

}  // namespace tithe::python
