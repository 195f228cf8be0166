// SPDX-License-Identifier: Apache-2.0
#include "engine/session/trace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "base/open_file.h"
#include "base/secret.h"

namespace tithe::engine {
namespace {

constexpr std::string_view kRank = "{rank}";
constexpr std::size_t kJobBytes = 8;

Status io(const std::string& path, std::string_view what, int error) {
  return {Code::kIo, fmt::format("trace {}: {}: {}", path, what, std::strerror(error))};
}

OpenFile open_part(const std::string& path) {
  return OpenFile(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666));
}

// The number of sessions of this rank in this process that have used this name, including this one.
int count_session(const std::string& pattern, int rank) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int>, int> counts;
  const std::lock_guard lock(mutex);
  return ++counts[{pattern, rank}];
}

// The same on all ranks. Reveals nothing about the key.
std::string job_of(ByteView key) {
  std::string out;
  if (key.empty()) return out;
  const Secret digest = derive(key, "trace", {});
  for (std::size_t i = 0; i < kJobBytes; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace

std::string trace_path(const std::string& pattern, int rank, int session) {
  const std::string later = session > 1 ? fmt::format(".{}", session) : "";
  if (const std::size_t at = pattern.find(kRank); at != std::string::npos)
    return std::string(pattern).replace(at, kRank.size(), fmt::format("{}{}", rank, later));
  const std::size_t folder = pattern.rfind('/');
  const std::size_t first = folder == std::string::npos ? 0 : folder + 1;
  std::size_t ending = pattern.rfind('.');
  // ".trace" is a name, not an extension
  if (ending == std::string::npos || ending <= first) ending = pattern.size();
  return std::string(pattern).insert(ending, fmt::format("{}.rank{}", later, rank));
}

Result<std::unique_ptr<TraceFile>> TraceFile::open(const std::string& pattern, const Transport& transport,
                                                   std::uint64_t run) {
  const int rank = transport.rank();
  std::string path = trace_path(pattern, rank, count_session(pattern, rank));
  struct stat there {};
  if (stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
    return Status(Code::kIo, fmt::format("trace {}: is not a regular file: set TITHE_TRACE to a file", path));
  if (!open_part(path + ".part").ok()) return io(path, "cannot write there", errno);
  return std::unique_ptr<TraceFile>(new TraceFile(std::move(path), {.rank = rank,
                                                                    .world = transport.world(),
                                                                    .run = run,
                                                                    .job = job_of(transport.key()),
                                                                    .host = host_name()}));
}

Status TraceFile::write(const Recorder& recorder) {
  const Recorder::Recording kept = recorder.kept();
  if (written_ == kept.events.size() && origin_.lost == kept.lost) return {};
  origin_.lost = kept.lost;
  const std::string part = path_ + ".part";
  OpenFile out = open_part(part);
  if (!out.ok()) return io(path_, "cannot write there", errno);
  int failed = 0;  // errno of the first write that failed
  trace::write(origin_, kept.events, [&](std::string_view text) {
    if (failed == 0 && !write_all(out.get(), text)) failed = errno;
  });
  if (failed == 0 && out.close_now() != 0) failed = errno;
  // Deletes the incomplete file, which would only use disk space.
  const auto give_up = [&](std::string_view what, int error) {
    unlink(part.c_str());
    return io(path_, what, error);
  };
  if (failed != 0) return give_up("cannot write", failed);
  if (rename(part.c_str(), path_.c_str()) != 0) return give_up("cannot rename to it", errno);
  written_ = kept.events.size();
  return {};
}

}  // namespace tithe::engine
