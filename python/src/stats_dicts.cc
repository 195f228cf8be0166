// SPDX-License-Identifier: Apache-2.0
#include "stats_dicts.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

namespace tithe::python {
namespace nb = nanobind;

nb::dict to_dict(const SessionStats& s) {
  nb::dict d;
#define TITHE_STAT(type, name, initial, documentation) d[#name] = s.name;
#include "tithe/stats.def"
#undef TITHE_STAT
  return d;
}

nb::list to_list(const std::vector<TensorStats>& tensors) {
  nb::list all;
  for (const TensorStats& t : tensors) {
    nb::dict d;
    d["key"] = t.key;
    d["values"] = t.n;
    d["codec"] = t.codec;
    d["strategy"] = t.strategy;
    d["side"] = t.side;
    d["gradient_norm"] = t.gradient_norm;
    d["residual_norm"] = t.residual_norm;
    d["values_lost"] = t.values_lost;
    d["sum_lost"] = t.sum_lost;
    all.append(d);
  }
  return all;
}

nb::list to_list(const std::vector<TraceEvent>& events) {
  nb::list all;
  for (const TraceEvent& e : events) {
    nb::dict d;
    d["op"] = e.op;
    d["round"] = e.round;
    d["bucket"] = e.bucket;
    d["part"] = e.part;
    d["key"] = e.key;
    d["codec"] = e.codec;
    d["chunk"] = e.chunk;
    d["phase"] = e.phase;
    d["peer"] = e.peer;
    d["lane"] = e.lane;
    d["ready_ns"] = e.ready_ns;
    d["begin_ns"] = e.begin_ns;
    d["end_ns"] = e.end_ns;
    d["bytes"] = e.bytes;
    all.append(d);
  }
  return all;
}

}  // namespace tithe::python
