// SPDX-License-Identifier: Apache-2.0
#pragma once
// A frame in a file. No job expects it, so only its own header describes it.
#include <vector>

#include "tithe/limits.h"
#include "tithe/seam/codec.h"
#include "tithe/seam/frame.h"

namespace tithe::cli {

struct FrameFile {
  ParsedFrame frame;
  const Codec* codec;           // nullptr: this build does not have the codec id
  std::vector<ByteView> parts;  // empty if the frame is flagged non-finite or empty
};

bool looks_like_frame(ByteView bytes);

// kCorrupt and kMismatch as in parse_frame().
Result<FrameFile> open_frame(ByteView bytes);

// kUnsupported: an unknown codec, a phase that cannot be decoded alone, or more than `max_values`; kCorrupt as the
// codec reports.
Result<std::vector<float>> values_of(const FrameFile& file, std::size_t max_values);

}  // namespace tithe::cli
