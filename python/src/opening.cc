// SPDX-License-Identifier: Apache-2.0
// Opens a transport with the caller's exchange function. The opening work owns its data, since Ctrl-C detaches it.
#include "opening.h"

#include <string>
#include <utility>
#include <vector>

namespace tithe::python {

AllGather python_all_gather(const nb::callable& gather, const std::shared_ptr<MainThreadCalls>& calls) {
  return [gather = gather.ptr(), calls](ByteView mine) -> Result<std::vector<std::vector<std::uint8_t>>> {
    std::vector<std::vector<std::uint8_t>> all;
    bool whole = false;
    const bool answered = calls->ask([&] {
      const nb::object blobs = nb::borrow<nb::callable>(gather)(to_bytes(mine));
      for (const nb::handle blob : blobs) {
        const ByteView view = view_of(blob, "all_gather must return a list of bytes");
        all.emplace_back(view.begin(), view.end());
      }
      whole = true;
    });
    if (!answered || !whole) return Status(Code::kCancelled, "the exchange of addresses was cancelled");
    return all;
  };
}

Status between_processes(std::string_view text) {
  const Result<TransportChoice> choice = choose_transport(text);
  if (!choice.ok() || choice->kind->open != nullptr) return choice.status();
  return {Code::kInvalid,
          std::string(choice->kind->name) + " only connects threads of one process: use Session.loop()"};
}

std::unique_ptr<Transport> open_interruptible(const std::shared_ptr<MainThreadCalls>& calls,
                                              const std::string& transport, ConnectOptions connect,
                                              const std::shared_ptr<std::atomic<bool>>& withdrawn) {
  const auto opened =
      std::make_shared<Result<std::unique_ptr<Transport>>>(Status(Code::kCancelled, "not open"));
  connect.interrupted = [withdrawn] { return withdrawn->load(); };
  try {
    run_interruptible(
        calls, [opened, transport, connect] { *opened = open_transport(transport, connect); }, nullptr);
  } catch (...) {
    *withdrawn = true;
    throw;
  }
  if (!opened->ok()) raise(opened->status());
  return std::move(**opened);
}

}  // namespace tithe::python
