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

#include "base/secret.h"

namespace tithe::engine {
namespace {

constexpr std::string_view kRank = "{rank}";
constexpr std::size_t kJobBytes = 8;

Status io(const std::string& path, std::string_view what, int error) {
  return {Code::kIo, fmt::format("trace {}: {}: {}", path, what, std::strerror(error))};
}

class Descriptor {
 public:
  explicit Descriptor(const std::string& path)
      : fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  bool ok() const { return fd_ >= 0; }
  bool write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::write(fd_, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return failed();
      text.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  // Some write errors are reported only by close().
  bool close_now() { return close(std::exchange(fd_, -1)) == 0 || failed(); }
  int error() const { return error_; }

 private:
  bool failed() {
    error_ = errno;
    return false;
  }
  int fd_;
  int error_ = 0;  // of the write that failed
};

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
  if (!Descriptor(path + ".part").ok()) return io(path, "cannot write there", errno);
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
  Descriptor out(part);
  if (!out.ok()) return io(path_, "cannot write there", errno);
  bool good = true;
  trace::write(origin_, kept.events, [&](std::string_view text) { good = good && out.write(text); });
  // Deletes the incomplete file, which would only use disk space.
  const auto give_up = [&](std::string_view what, int error) {
    unlink(part.c_str());
    return io(path_, what, error);
  };
  if (!good || !out.close_now()) return give_up("cannot write", out.error());
  if (rename(part.c_str(), path_.c_str()) != 0) return give_up("cannot rename to it", errno);
  written_ = kept.events.size();
  return {};
}

}  // namespace tithe::engine
