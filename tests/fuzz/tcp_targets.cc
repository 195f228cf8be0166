// SPDX-License-Identifier: Apache-2.0
// The bytes that the transport tcp reads from peers: before they have proved the key, and after that.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "fuzz/targets.h"
#include "transport/tcp/endpoints.h"
#include "transport/tcp/keys.h"
#include "transport/tcp/records.h"
#include "transport/tcp/tcp_handshake.h"
#include "transport/tcp/tls.h"

namespace tithe::fuzz {
namespace {

Input input(ByteView bytes) { return {bytes.begin(), bytes.end()}; }

// Both ends of a tcp connection before authentication: messages created without the key are rejected.
Target tcp_handshake_target() {
  static const Secret kKey{6}, kNonce{7};
  const tcp::ConnectRequest request{
      .purpose = tcp::Purpose::kData, .stream = 3, .from = 1, .to = 2, .nonce = {8}};
  const Input request_bytes = input(tcp::write_request(request));
  const Input challenge = input(tcp::write_challenge(kKey, request_bytes, kNonce));
  return {"tcp_handshake",
          [request_bytes, challenge](ByteView bytes) {
            if (const auto k = tcp::read_request(bytes); k && input(tcp::write_request(*k)) != input(bytes))
              fail("a request is not reproduced by its writer");
            if (tcp::read_challenge(kKey, request_bytes, bytes) && input(bytes) != challenge)
              fail("a challenge made without the key is accepted");
            if (const auto p = tcp::read_endpoints(bytes); p.ok() && tcp::write_endpoints(*p) != input(bytes))
              fail("endpoints are not reproduced by their writer");
          },
          {request_bytes, challenge, input(tcp::claim(kKey, request_bytes, kNonce)),
           tcp::write_endpoints(
               {.network = 5,
                .at = {{asio::ip::address_v4::loopback(), 80}, {asio::ip::address_v6::loopback(), 81}}})}};
}

// The records of a control connection.
Target records_target() {
  const auto spelled = [](const tcp::Record& record) {
    Input out(tcp::kRecordBytes);
    tcp::write_record(record, out.data());
    return out;
  };
  return {
      "records",
      [spelled](ByteView bytes) {
        const auto record = tcp::read_record(bytes);
        if (!record) return;
        if (spelled(*record) != input(bytes)) fail("a record is not reproduced by its writer");
        const std::size_t behind = tcp::bytes_behind(*record);
        if (behind > std::max(tcp::kWholeBytes, tcp::kMaxEdgeBytes))
          fail("the size of a record exceeds the limit");
        if (record->kind == tcp::Kind::kLong && (record->n - behind) % tcp::kBodyUnit != 0)
          fail("a piece of a body ends within a unit");
      },
      {spelled({.kind = tcp::Kind::kWhole, .about = 7, .n = 4096}),
       spelled({.kind = tcp::Kind::kLong, .about = 7, .n = 4097}),
       spelled({.kind = tcp::Kind::kPiece, .stream = 3, .about = 9, .n = 64}),
       spelled({.kind = tcp::Kind::kGrant, .about = 7, .n = 1000}), spelled({.kind = tcp::Kind::kFarewell})}};
}

// Unauthenticated bytes to a rank that listens with certificates: never accepted, and the answer's size is limited.
Target tls_target() {
  std::string folder = (std::filesystem::temp_directory_path() / "tithe-fuzz-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr || !tcp::make_keys(folder + "/job", 2, std::chrono::hours(1)).ok())
    fail("cannot make certificates");
  const auto load = [&](Rank rank) { return *tcp::Credentials::load(folder + "/job", rank); };
  const std::shared_ptr<const tcp::Credentials> host = load(0), caller = load(1);
  std::filesystem::remove_all(folder);
  const auto nothing = [](std::uint8_t*, std::size_t) -> std::ptrdiff_t {
    errno = EAGAIN;
    return -1;
  };
  Input hello;
  tcp::TlsEnd first(
      *caller, 0,
      [&hello](std::uint8_t* bytes, std::size_t n) {
        hello.insert(hello.end(), bytes, bytes + n);
        return static_cast<std::ptrdiff_t>(n);
      },
      nothing);
  first.handshake();
  return {"tls",
          [host](ByteView bytes) {
            std::size_t answered = 0;
            tcp::TlsEnd end(
                *host, -1,
                [&answered](std::uint8_t*, std::size_t n) {
                  answered += n;
                  return static_cast<std::ptrdiff_t>(n);
                },
                [&bytes](std::uint8_t* into, std::size_t n) -> std::ptrdiff_t {
                  n = std::min(n, bytes.size());
                  if (n == 0) errno = EAGAIN;
                  if (n == 0) return -1;
                  std::copy_n(bytes.begin(), n, into);
                  bytes = bytes.subspan(n);
                  return static_cast<std::ptrdiff_t>(n);
                });
            std::uint8_t in[64];
            if (end.handshake() == 1 || end.read(in) > 0) fail("an unauthenticated client is accepted");
            if (answered > 16'384) fail("an unauthenticated client gets too many bytes");
          },
          {hello}};
}

}  // namespace

void add_tcp_targets(std::vector<Target>& targets) {
  targets.push_back(tcp_handshake_target());
  targets.push_back(records_target());
  targets.push_back(tls_target());
}

}  // namespace tithe::fuzz
