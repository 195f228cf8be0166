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

template <std::chrono::milliseconds SessionOptions::*kMember>
void seconds(nb::class_<SessionOptions>& options, const char* name, const char* doc) {
  options.def_prop_rw(
      name, [](const SessionOptions& o) { return std::chrono::duration<double>(o.*kMember).count(); },
      [name](SessionOptions& o, double given) { o.*kMember = to_milliseconds(name, given); }, doc);
}

}  // namespace

std::chrono::milliseconds to_milliseconds(std::string_view name, double seconds) {
  constexpr double kMost = 1e9;  // about 30 years; more would not be a number of milliseconds any longer
  if (!(std::fabs(seconds) <= kMost))
    raise({Code::kInvalid, std::string(name) + ": must be a number of seconds, at most 1e9"});
  return std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * seconds));
}

void bind_options(nb::module_& m) {
  nb::class_<SessionOptions> options(m, "Options",
                                     "What a session does; docs of each in include/tithe/session.h.");
  options.def(nb::init<>())
      .def_rw("codec", &SessionOptions::codec)
      .def_rw("strategy", &SessionOptions::strategy)
      .def_rw("choices", &SessionOptions::choices)
      .def_rw("link", &SessionOptions::link)
      .def_rw("hosts", &SessionOptions::hosts)
      .def_rw("members", &SessionOptions::members)
      .def_rw("epoch", &SessionOptions::epoch)
      .def_rw("undo", &SessionOptions::undo)
      .def_rw("servers", &SessionOptions::servers)
      .def_rw("schedule", &SessionOptions::schedule)
      .def_rw("lanes", &SessionOptions::lanes, nb::arg().none())
      .def_rw("average", &SessionOptions::average)
      .def_rw("min_values", &SessionOptions::min_values)
      .def_rw("part_values", &SessionOptions::part_values)
      .def_rw("seed", &SessionOptions::seed)
      .def_rw("run", &SessionOptions::run)
      .def_rw("force_reference", &SessionOptions::force_reference)
      .def_rw("authenticate", &SessionOptions::authenticate)
      .def_rw("checksum", &SessionOptions::checksum)
      .def_rw("pacer", &SessionOptions::pacer)
      .def_rw("device", &SessionOptions::device)
      .def_rw("trace", &SessionOptions::trace)
      .def_rw("measure", &SessionOptions::measure)
      .def_rw("stragglers", &SessionOptions::stragglers);
  seconds<&SessionOptions::timeout>(
      options, "timeout",
      "If an awaited peer sends nothing for this many seconds, the session ends and names the peer.");
  seconds<&SessionOptions::patience>(
      options, "patience",
      "Seconds in which a peer answers, but gives nothing, after which the peer is named.");
  m.def(
      "parse_link",
      [](const std::string& text) {
        const Link link = unwrap(parse_link(text));
        return std::pair(link.bytes_per_second, link.seconds_per_frame);
      },
      nb::arg("text"),
      "Bytes per second and seconds per frame of \"1gbit\" or \"10Gb/s+50us\"; 0 bytes: nothing is known.");
  m.def(
      "hosts_of_ranks",
      [](const std::string& text, int world) {
        const Hosts hosts = unwrap(Hosts::parse(text, world));
        std::vector<int> out;
        for (int r = 0; r < world; ++r) out.push_back(hosts.of_rank(r));
        return out;
      },
      nb::arg("text"), nb::arg("world"), "The host of each rank, of what the option hosts says.");
  m.def(
      "suggest",
      [](const std::string& wrong, const std::vector<std::string>& known) {
        return suggest(wrong, std::vector<std::string_view>(known.begin(), known.end()));
      },
      nb::arg("wrong"), nb::arg("known"), "Did you mean, and what is known.");
}

}  // namespace tithe::python
