// SPDX-License-Identifier: Apache-2.0
// A registry of all descriptors owned by UniqueFd objects. The fork handlers hold its mutex during fork(), and the
// child's handler closes every registered descriptor.
#include "base/unique_fd.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <vector>

namespace tithe::forks {
namespace {

// fork() takes the mutex, so `owned` is consistent in a child. The child's handler allocates no memory and calls only
// close(), since other threads may have held any other lock at the fork.
struct Registry {
  std::mutex mutex;
  std::vector<bool> owned;           // by descriptor
  std::atomic<bool> closed = false;  // a fork handler has closed a descriptor

  Registry();
  void close_all() {
    for (std::size_t fd = 0; fd < owned.size(); ++fd)
      if (owned[fd]) {
        ::close(static_cast<int>(fd));
        closed = true;
      }
    std::fill(owned.begin(), owned.end(), false);
  }
};

std::atomic<unsigned> number{0};

Registry& registry() {
  // NOLINTNEXTLINE(*-owning-memory): never freed, since descriptors of static objects may outlive it otherwise
  static auto* const kRegistry = new Registry;
  return *kRegistry;
}

Registry::Registry() {
  pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                 [] {
                   registry().close_all();
                   number.fetch_add(1, std::memory_order_relaxed);
                   registry().mutex.unlock();
                 });
}

}  // namespace

Hold::Hold() { registry().mutex.lock(); }

Hold::~Hold() {
  const int kept = errno;
  registry().mutex.unlock();
  errno = kept;
}

void own(int fd) {
  std::vector<bool>& owned = registry().owned;
  const auto at = static_cast<std::size_t>(fd);
  if (at >= owned.size()) owned.resize(2 * at + 64);
  owned[at] = true;
}

// Atomic with respect to fork(): a child neither keeps the descriptor nor closes a new one with the same number.
void close_owned(int fd) {
  const Hold hold;
  registry().owned[static_cast<std::size_t>(fd)] = false;
  ::close(fd);
}

bool inherited() { return registry().closed; }

unsigned count() { return number.load(std::memory_order_relaxed); }

}  // namespace tithe::forks
