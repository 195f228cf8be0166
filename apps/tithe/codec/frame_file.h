// SPDX-License-Identifier: Apache-2.0
#pragma once
// A frame in a file: no job expects it, so what it says about itself is all there is.
#include <string>
#include <vector>

#include "tithe/limits.h"
#include "tithe/seam/codec.h"
#include "tithe/seam/frame.h"

namespace tithe::cli {

struct FrameFile {
  ParsedFrame frame;
  const Codec* codec;           // nullptr: an id that this build does not know
  std::vector<ByteView> parts;  // none where the frame is flagged non-finite or empty
};

bool looks_like_frame(ByteView bytes);

// kCorrupt, kMismatch as parse_frame.
Result<FrameFile> open_frame(ByteView bytes);

// kUnsupported: unknown codec, a phase that means nothing alone, more than `most_values`; kCorrupt as the codec says.
Result<std::vector<float>> values_of(const FrameFile& file, std::size_t most_values);

}  // namespace tithe::cli
