// SPDX-License-Identifier: Apache-2.0
#include "frame_file.h"

#include <fmt/format.h>

#include <limits>

#include "base/bytes.h"
#include "encode_once.h"
#include "tithe/seam/catalogue.h"

namespace tithe::cli {

bool looks_like_frame(ByteView bytes) {
  return bytes.size() >= 4 && wire::get<std::uint32_t>(bytes.data()) == kFrameMagic;
}

Result<FrameFile> open_frame(ByteView bytes) {
  Result<ParsedFrame> parsed = parse_frame(bytes);
  if (!parsed.ok())
    return Status(parsed.status().code(), parsed.status().what());  // without the peer: the file is wrong
  const FrameHeader& header = parsed->header;
  FrameFile file{*parsed, find_codec(header.codec), {}};
  if ((header.flags & (kFlagNonFinite | kFlagEmpty)) == 0) {
    file.parts.resize(header.parts);
    if (const Status s = split_parts(*parsed, file.parts); !s.ok()) return Status(s.code(), s.what());
  }
  return file;
}

Result<std::vector<float>> values_of(const FrameFile& file, std::size_t max_values) {
  const FrameHeader& header = file.frame.header;
  if ((header.flags & kFlagEmpty) != 0)
    return Status(Code::kUnsupported, "this frame is flagged empty: it has no values");
  if (header.values > max_values)
    return Status(Code::kUnsupported, fmt::format("the frame stands for {} values; --max-values allows {}",
                                                  header.values, max_values));
  if ((header.flags & kFlagNonFinite) != 0)
    return std::vector<float>(header.values, std::numeric_limits<float>::quiet_NaN());
  if (file.codec == nullptr)
    return Status(Code::kUnsupported,
                  fmt::format("codec id {} is unknown to this build", static_cast<int>(header.codec)));
  if (header.phase != 0 || file.codec->phases.size() != 1)
    return Status(Code::kUnsupported,
                  fmt::format("{} needs {} exchanges between ranks; this frame is only from number {}",
                              file.codec->name, file.codec->phases.size(), header.phase));
  return decode_once(*file.codec, file.parts, header.values);
}

}  // namespace tithe::cli
