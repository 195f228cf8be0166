// SPDX-License-Identifier: Apache-2.0
// A session continues with other ranks. A new Impl is made for their world from the state of the last commit; then
// the pointer changes, and the old Impl is destroyed with its lanes and its transport.
#include <fmt/format.h>

#include "base/text.h"
#include "engine/session/straggler_proxy.h"

namespace tithe {

// Takes over the statistics, which belong to the session and not to its world.
void Session::Impl::follow(Impl& old) {
  const SessionStats before = old.stats();
  const std::scoped_lock lock(old.mutex_, mutex_);
  before_ = before;
  rounds_undone_ = old.rounds_undone_;
  ranks_lost_ += old.ranks_lost_;
  values_dropped_ = old.values_dropped_;
  sum_dropped_ = old.sum_dropped_;
  sum_decayed_ = old.sum_decayed_;
  gradient_bytes_ = old.gradient_bytes_;
  exchange_ns_ = old.exchange_ns_;
  exposed_ns_ = old.exposed_ns_;
  for (const auto& [key, gave] : old.book_) book_[key] += gave;
  lines_.insert(lines_.begin(), old.lines_.begin(), old.lines_.end());
}

Status Session::Impl::may_become(Rank rank, int world, const std::vector<std::string>& members,
                                 std::uint64_t epoch) const {
  if (world < 1 || rank < 0 || rank >= world)
    return {Code::kInvalid, fmt::format("reform: rank {} must be below the world size of {}", rank, world)};
  if (members.empty())
    return {
        Code::kInvalid,
        "reform: members must name the ranks, because ranks of the previous world are identified by name"};
  TITHE_TRY(engine::check_members(members, world));
  const std::string& name = members[static_cast<std::size_t>(rank)];
  if (name != my_name())
    return {Code::kInvalid, fmt::format("reform: this rank is '{}', and member {} of the new world is '{}'",
                                        printable(my_name(), 200), rank, printable(name, 200))};
  if (epoch <= options_.epoch)
    return {Code::kInvalid, fmt::format("reform: epoch={} must be greater than this session's epoch {}",
                                        epoch, options_.epoch)};
  if (member_.servers >= world)
    return {Code::kInvalid,
            fmt::format("reform: servers={} in a world of {} ranks: at least one rank must not be a server",
                        member_.servers, world)};
  const Result<Hosts> hosts = options_.hosts.empty() ? Hosts{} : Hosts::parse(options_.hosts, world);
  if (!hosts.ok()) return hosts.status();
  if (const auto choices = engine::choices_of(options_, world, *hosts); !choices.ok())
    return choices.status();
  return proxy_ == nullptr ? Status{} : proxy_->check_level("reform");
}

SessionOptions Session::Impl::options_in(std::vector<std::string> members, std::uint64_t epoch) const {
  SessionOptions next = options_;
  if (!link_said_) next.link.clear();
  next.members = std::move(members);
  next.epoch = epoch;
  return next;
}

namespace {

// Closing a transport sends a farewell to all ranks, and takes seconds if one of them is frozen, so it runs in the
// background. With a trace it does not, because the next session needs the file.
template <typename Old>
void leave(std::shared_ptr<Old> old, engine::Runner& next) {
  if (old->runner().recorder().on()) return;
  try {
    next.run_in_background([left = std::move(old)]() mutable { left.reset(); });
  } catch (const std::bad_alloc&) {  // `old` is destroyed here
  }
}

}  // namespace

Status Session::may_reform(Rank rank, int world, const std::vector<std::string>& members,
                           std::uint64_t epoch) const {
  return impl()->may_become(rank, world, members, epoch);
}

// If a step fails before the pointer changes, the session is cancelled and keeps its state.
Status Session::reform(std::unique_ptr<Transport> transport, std::vector<std::string> members,
                       std::uint64_t epoch) {
  std::shared_ptr<Impl> old = impl();
  if (transport == nullptr) return {Code::kInvalid, "reform: a session needs a transport"};
  TITHE_TRY(old->may_become(transport->rank(), transport->world(), members, epoch));
  if (old->proxy() != nullptr) TITHE_TRY(old->proxy()->level("reform", true));
  const Rank me = old->member().me;
  try {
    old->runner().cancel();
    const Result<std::vector<std::uint8_t>> state = old->state();
    if (!state.ok()) return state.status();
    const Result<std::unique_ptr<Session>> next =
        Impl::open(std::move(transport), old->options_in(std::move(members), epoch));
    if (!next.ok()) return next.status();
    const ByteView mine(*state);
    TITHE_TRY((*next)->impl_->restore(std::span(&mine, 1), Lost::kSpread));
    (*next)->impl_->follow(*old);
    const std::lock_guard lock(mutex_);
    impl_ = (*next)->impl_;
  } catch (const std::bad_alloc&) {
    return {Code::kIo,
            "there is no memory to continue with other ranks, which needs a second copy of the session's "
            "residuals",
            me};
  }
  leave(std::move(old), impl()->runner());
  return {};
}

}  // namespace tithe
