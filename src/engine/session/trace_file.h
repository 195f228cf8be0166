// SPDX-License-Identifier: Apache-2.0
#pragma once
// The trace file of a session: one file per rank, written under a temporary name and renamed.
//
//   early     open() refuses a path that cannot be written
//   own       no two ranks, and no two sessions of a process, write the same file
//   whole     the file holds a whole trace, or its previous content
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
  // `pattern` contains {rank}; without it, ".rank0" is inserted before the extension. Further sessions of a rank in
  // this process get ".2" and so on before that. kIo: the folder does not exist or is not writable.
  static Result<std::unique_ptr<TraceFile>> open(const std::string& pattern, const Transport& transport,
                                                 std::uint64_t run);

  const std::string& path() const { return path_; }
  // Writes all events recorded so far. kIo if that fails; the previous file is then unchanged.
  Status write(const Recorder& recorder);

 private:
  TraceFile(std::string path, trace::Origin origin) : path_(std::move(path)), origin_(std::move(origin)) {}
  std::string path_;
  trace::Origin origin_;
  std::optional<std::size_t> written_;  // number of events in the file
};

std::string trace_path(const std::string& pattern, int rank, int session);

}  // namespace tithe::engine
