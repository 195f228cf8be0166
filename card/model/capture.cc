// SPDX-License-Identifier: Apache-2.0
#include "card/model/capture.h"

#include <fmt/format.h>

#include "base/bytes.h"

namespace tithe::card {
namespace {

constexpr std::uint32_t kMicroseconds = 0xa1b2c3d4, kNanoseconds = 0xa1b23c4d;
constexpr std::size_t kFileHead = 24, kRecordHead = 16;
constexpr std::uint32_t kEthernet = 1, kMaxCaptured = 262144;
constexpr std::uint64_t kSecond = 1'000'000'000;

std::uint32_t swapped(std::uint32_t v) { return v >> 24 | (v >> 8 & 0xff00) | (v << 8 & 0xff0000) | v << 24; }

Status corrupt(std::string_view why) { return {Code::kCorrupt, fmt::format("no capture: {}", why)}; }

}  // namespace

Result<std::vector<Captured>> read_capture(ByteView file) {
  if (file.size() < kFileHead) return corrupt("shorter than its header");
  const std::uint32_t magic = wire::get<std::uint32_t>(file.data());
  const bool swaps = magic == swapped(kMicroseconds) || magic == swapped(kNanoseconds);
  const auto number = [&](std::size_t at) {
    const auto v = wire::get<std::uint32_t>(&file[at]);
    return swaps ? swapped(v) : v;
  };
  if (number(0) != kMicroseconds && number(0) != kNanoseconds)
    return corrupt("it does not begin with a pcap magic number (convert pcapng with `editcap -F pcap`)");
  const std::uint64_t unit = number(0) == kMicroseconds ? 1000 : 1;
  if ((number(20) & 0xffff) != kEthernet) return corrupt("its frames are not Ethernet's");
  std::vector<Captured> all;
  for (std::size_t at = kFileHead; at < file.size();) {
    if (file.size() - at < kRecordHead) return corrupt("it ends within a record");
    const std::uint32_t bytes = number(at + 8);
    if (bytes != number(at + 12))
      return corrupt(fmt::format("frame {} was truncated by the capture to {} of {} bytes", all.size(), bytes,
                                 number(at + 12)));
    if (bytes > kMaxCaptured || bytes > file.size() - at - kRecordHead)
      return corrupt("it ends within a frame");
    all.push_back({kSecond * number(at) + unit * number(at + 4), file.subspan(at + kRecordHead, bytes)});
    at += kRecordHead + bytes;
  }
  return all;
}

void begin_capture(std::vector<std::uint8_t>& file) {
  file.assign(kFileHead, 0);
  wire::put(&file[0], kNanoseconds);
  wire::put(&file[4], std::uint16_t{2});
  wire::put(&file[6], std::uint16_t{4});
  wire::put(&file[16], kMaxCaptured);
  wire::put(&file[20], kEthernet);
}

void add_to_capture(std::vector<std::uint8_t>& file, std::uint64_t ns, ByteView frame) {
  const std::size_t at = file.size();
  file.resize(at + kRecordHead);
  wire::put(&file[at], static_cast<std::uint32_t>(ns / kSecond));
  wire::put(&file[at + 4], static_cast<std::uint32_t>(ns % kSecond));
  wire::put(&file[at + 8], static_cast<std::uint32_t>(frame.size()));
  wire::put(&file[at + 12], static_cast<std::uint32_t>(frame.size()));
  file.insert(file.end(), frame.begin(), frame.end());
}

}  // namespace tithe::card
