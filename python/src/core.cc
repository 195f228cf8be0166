// SPDX-License-Identifier: Apache-2.0
// The extension module, and the conversion of a Status to a Python exception.
#include "core.h"

#include <string>

#include "tithe/seam/machine.h"

namespace tithe::python {
namespace {

PyObject* error_type = nullptr;  // tithe.Error, owned by the module

// kTimeout has no cure here: its text names the option that expired, since there are several.
std::string_view cure(const Status& status) {
  switch (status.code()) {
    case Code::kMismatch:
      return "; use the same tithe, model, codec, strategy and options on every rank";
    case Code::kPeerLost:
      return "; see that rank's log; the other ranks can continue without it, or all ranks from their saved "
             "states (docs/guide/elastic.md)";
    case Code::kCorrupt:
      if (status.peer() == Status::kNoPeer) return "";
      return "; the network or that rank's memory changed bytes: continue without that rank, or from the "
             "saved states of all ranks (docs/guide/elastic.md)";
    case Code::kIo:
      return "; `tithe doctor` checks this machine's network";
    case Code::kCancelled:
      return "; open a new session, or reform this one (docs/guide/elastic.md)";
    default:
      return "";
  }
}

// Converts text that may come from peers or files: invalid UTF-8 becomes U+FFFD.
nb::object readable(std::string_view text) {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

}  // namespace

void raise(const Status& status) {
  const Code code = status.code();
  if (code == Code::kInvalid || code == Code::kTooSmall || code == Code::kUnsupported)
    throw_as(PyExc_ValueError, status.what());
  const std::string text = status.what() + std::string(cure(status));
  nb::object error = nb::borrow(error_type)(readable(text));
  if (status.peer() == Status::kNoPeer)
    error.attr("peer") = nb::none();
  else
    error.attr("peer") = status.peer();
  error.attr("code") = nb::str(name(code).data(), name(code).size());
  PyErr_SetObject(error_type, error.ptr());
  throw nb::python_error();
}

void throw_as(PyObject* type, std::string_view text) {
  PyErr_SetObject(type, readable(text).ptr());
  throw nb::python_error();
}

}  // namespace tithe::python

NB_MODULE(_core, m) {
  using namespace tithe::python;
#ifdef NDEBUG
  // An uncaught exception keeps its frames, and with them sessions and layouts, until after the extension is unloaded;
  // Python does not guarantee to destroy them. Nothing is lost, and a leak report below the exception would only hide
  // its cause.
  nb::set_leak_warnings(false);
#endif
  m.doc() = "The C++ engine of tithe. Use it through the package `tithe`.";
  m.attr("__version__") = TITHE_VERSION;
  error_type =
      PyErr_NewExceptionWithDoc("tithe.Error",
                                "A round failed: a peer is gone or silent, differs, or sent corrupt data.\n\n"
                                "peer: the rank that is to blame, or None.  code: a word of "
                                "docs/reference/errors.md, e.g. 'peer_lost'.",
                                PyExc_RuntimeError, nullptr);
  m.attr("Error") = nb::borrow(error_type);
  m.def("check_environment", [] { check(tithe::check_environment()); });
  bind_codecs(m);
  bind_interrupt(m);
  bind_options(m);
  bind_rejoin(m);
  bind_choices(m);
  bind_session(m);
  bind_weights(m);
}
