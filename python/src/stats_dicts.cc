// SPDX-License-Identifier: Apache-2.0
#include "stats_dicts.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

namespace tithe::python {
namespace nb = nanobind;

nb::dict to_dict(const SessionStats& s) {
  nb::dict d;
  d["rounds"] = s.rounds;
  d["rounds_dropped"] = s.rounds_dropped;
  d["values_let_go"] = s.values_let_go;
  d["sum_let_go"] = s.sum_let_go;
  d["sum_forgotten"] = s.sum_forgotten;
  d["rounds_undone"] = s.rounds_undone;
  d["epoch"] = s.epoch;
  d["ranks_lost"] = s.ranks_lost;
  d["values_lost"] = s.values_lost;
  d["sum_lost"] = s.sum_lost;
  d["late_rank"] = s.late_rank;
  d["late_share"] = s.late_share;
  d["late_ns"] = s.late_ns;
  d["rounds_missed"] = s.rounds_missed;
  d["rounds_behind"] = s.rounds_behind;
  d["lanes"] = s.lanes;
  d["values"] = s.values;
  d["frames_sent"] = s.frames_sent;
  d["bytes_sent"] = s.bytes_sent;
  d["encode_ns"] = s.encode_ns;
  d["merge_ns"] = s.merge_ns;
  d["send_ns"] = s.send_ns;
  d["wait_ns"] = s.wait_ns;
  d["strange"] = s.strange;
  d["events_lost"] = s.events_lost;
  d["gradient_bytes"] = s.gradient_bytes;
  d["exchange_ns"] = s.exchange_ns;
  d["exposed_ns"] = s.exposed_ns;
  d["measured_round"] = s.measured_round;
  d["gradient_norm"] = s.gradient_norm;
  d["residual_norm"] = s.residual_norm;
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
