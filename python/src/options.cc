// SPDX-License-Identifier: Apache-2.0
// A session's options, as Python sets them: include/tithe/session.h.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/nearest.h"
#include "core.h"
#include "tithe/choices.h"
#include "tithe/hosts.h"
#include "tithe/session.h"

namespace tithe::python {
namespace {

using Options = nb::class_<SessionOptions>;

template <typename T>
void bind(Options& options, const char* name, T SessionOptions::*member, const char* documentation) {
  options.def_rw(name, member, documentation);
}
void bind(Options& options, const char* name, std::optional<int> SessionOptions::*member,
          const char* documentation) {
  options.def_rw(name, member, nb::arg().none(), documentation);
}
// Python gives and receives seconds.
void bind(Options& options, const char* name, std::chrono::milliseconds SessionOptions::*member,
          const char* documentation) {
  options.def_prop_rw(
      name, [member](const SessionOptions& o) { return std::chrono::duration<double>(o.*member).count(); },
      [name, member](SessionOptions& o, double seconds) { o.*member = to_milliseconds(name, seconds); },
      documentation);
}

}  // namespace

std::chrono::milliseconds to_milliseconds(std::string_view name, double seconds) {
  constexpr double kMaxSeconds =
      1e9;  // about 30 years; more would not be a number of milliseconds any longer
  if (!(std::fabs(seconds) <= kMaxSeconds))
    raise({Code::kInvalid, std::string(name) + ": must be a number of seconds, at most 1e9"});
  return std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * seconds));
}

void bind_options(nb::module_& m) {
  Options options(m, "Options", "The options of a session (docs/reference/session_options.md).");
  options.def(nb::init<>())
      .def_rw("members", &SessionOptions::members,
              "Permanent names of the ranks, by rank (docs/guide/elastic.md).");
#define TITHE_OPTION(kind, name, initial, documentation) \
  bind(options, #name, &SessionOptions::name, documentation);
#include "tithe/options.def"
#undef TITHE_OPTION
  m.def(
      "parse_link",
      [](const std::string& text) {
        const Link link = unwrap(parse_link(text));
        return std::pair(link.bytes_per_second, link.seconds_per_frame);
      },
      nb::arg("text"),
      "Bytes per second and seconds per frame of \"1gbit\" or \"10Gb/s+50us\"; 0 bytes: unknown.");
  m.def(
      "hosts_of_ranks",
      [](const std::string& text, int world) {
        const Hosts hosts = unwrap(Hosts::parse(text, world));
        std::vector<int> out;
        for (int r = 0; r < world; ++r) out.push_back(hosts.of_rank(r));
        return out;
      },
      nb::arg("text"), nb::arg("world"), "The host of each rank, from the option hosts.");
  m.def(
      "suggest",
      [](const std::string& wrong, const std::vector<std::string>& known) {
        return suggest(wrong, std::vector<std::string_view>(known.begin(), known.end()));
      },
      nb::arg("wrong"), nb::arg("known"), "The nearest known name, or the list of known names.");
}

}  // namespace tithe::python
