// SPDX-License-Identifier: Apache-2.0
#pragma once
// The files of data/models/ and data/clusters/, embedded by the build, so that the command has them wherever it is
// installed. advisor/measure/CMakeLists.txt generates the lists, in alphabetical order.
#include <span>
#include <string_view>

namespace tithe::bench {

struct EmbeddedFile {
  std::string_view name, text;
};
std::span<const EmbeddedFile> model_files();
std::span<const EmbeddedFile> cluster_files();

}  // namespace tithe::bench
