// SPDX-License-Identifier: Apache-2.0
#pragma once
// The files of models/, as the build found them: the command knows them wherever it is installed.
#include <span>
#include <string_view>

namespace tithe::bench {

struct ModelFile {
  std::string_view name, text;
};
std::span<const ModelFile> model_files();  // made by src/measure/CMakeLists.txt, in the order of the alphabet

}  // namespace tithe::bench
