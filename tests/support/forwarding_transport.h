// SPDX-License-Identifier: Apache-2.0
#pragma once
// A transport that forwards all calls to another: the base of transports that inject faults.
#include <memory>
#include <utility>

#include "tithe/seam/transport.h"

namespace tithe::testing {

class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::unique_ptr<Transport> inner)
      : inner_(std::move(inner)), rank_(inner_->rank()), world_(inner_->world()) {}

  std::string_view kind() const override { return inner_->kind(); }
  Rank rank() const final { return rank_; }
  int world() const final { return world_; }
  Hosts hosts() const override { return inner_->hosts(); }
  std::uint64_t link_rate() const override { return inner_->link_rate(); }
  CoresHere cores() const override { return inner_->cores(); }
  ByteView key() const override { return inner_->key(); }
  bool rounds_payloads() const override { return inner_->rounds_payloads(); }
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    return inner_->send(peer, channel, bytes, op);
  }
  Status recv(Rank peer, Channel channel, Bytes into, OpId op) override {
    return inner_->recv(peer, channel, into, op);
  }
  std::size_t poll(std::span<Completion> out, std::chrono::nanoseconds wait) override {
    return inner_->poll(out, wait);
  }
  void wake() override { inner_->wake(); }
  std::chrono::steady_clock::time_point now() const override { return inner_->now(); }
  void window(std::size_t bytes) override { inner_->window(bytes); }
  void cancel(OpId op) override { inner_->cancel(op); }
  Status peer_status(Rank peer) const override { return inner_->peer_status(peer); }
  std::uint64_t bytes_sent() const override { return inner_->bytes_sent(); }
  std::uint64_t bytes_received(Rank peer) const override { return inner_->bytes_received(peer); }

 protected:
  // nullptr for a dead rank: a subclass that resets it overrides the functions that use it.
  std::unique_ptr<Transport> inner_;

 private:
  const Rank rank_;
  const int world_;
};

}  // namespace tithe::testing
