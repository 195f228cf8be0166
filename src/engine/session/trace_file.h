// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a session leaves its trace: one file per rank, written whole under another name and renamed.
//
//   early     what cannot be written is refused when the session opens
//   own       no two ranks, and no two sessions of a process, write the same file
//   whole     the file holds all of a trace that was kept, or what was there before
//
// Threads  one at a time.
#include <memory>
#include <optional>
#include <string>

#include "engine/run/recorder.h"
#include "trace/rank_trace.h"

namespace tithe::engine {

class TraceFile {
 public:
  // `asked` names the rank by {rank}, or ".rank0" is put before its ending; further sessions of one rank in this
  // process add ".2" and so on before that. kIo: a folder that is not there or may not be written.
  static Result<std::unique_ptr<TraceFile>> open(const std::string& asked, const Transport& transport,
                                                 std::uint64_t run);

  const std::string& path() const { return path_; }
  // All that was kept so far. kIo where it cannot be written: the file beside it, with ".part" at its end, is not
  // whole.
  Status write(const Recorder& recorder);

 private:
  TraceFile(std::string path, trace::Origin origin) : path_(std::move(path)), origin_(std::move(origin)) {}
  std::string path_;
  trace::Origin origin_;
  std::optional<std::size_t> written_;  // events that the file holds
};

std::string trace_path(const std::string& asked, int rank, int session);

}  // namespace tithe::engine
