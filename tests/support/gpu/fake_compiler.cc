// SPDX-License-Identifier: Apache-2.0
// A fake NVRTC for tests: the system's compiler compiles the text to an object that fake_driver.cc runs. Errors that
// a GPU would report stop the test: a misaligned address, an index past the end.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "support/gpu/fake_gpu.h"

namespace {

namespace fs = std::filesystem;
using namespace tithe::fake;

enum : int { kOk = 0, kInvalidInput = 3, kInvalidOption = 5, kCompilation = 6 };

struct Program {
  std::string text, log, code;
  std::set<std::string> headers;
};

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int copy(const std::string& from, char* to) {
  std::memcpy(to, from.data(), from.size());
  return kOk;
}

// NVRTC finds only the headers that were passed to it.
bool misses_a_header(Program& program) {
  const std::string include = "#include <";
  for (std::size_t at = program.text.find(include); at != std::string::npos;
       at = program.text.find(include, at + 1)) {
    const std::size_t begin = at + include.size(), end = program.text.find('>', begin);
    const std::string name = program.text.substr(begin, end - begin);
    if (program.headers.contains(name)) continue;
    program.log = "tithe.cu(1): catastrophic error: cannot open source file \"" + name + "\"\n";
    return true;
  }
  return false;
}

// FAKE_NVRTC_SPOILS=FROM=TO: a compiler that makes something else of the text.
void spoil(std::string& text) {
  const char* spoils = std::getenv("FAKE_NVRTC_SPOILS");
  if (spoils == nullptr) return;
  const std::string both = spoils, from = both.substr(0, both.find('=')),
                    to = both.substr(both.find('=') + 1);
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

int compile(Program& program, unsigned sm) {
  if (misses_a_header(program)) return kCompilation;
  spoil(program.text);
  std::string folder = fs::temp_directory_path() / "fake_nvrtc_XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return kInvalidInput;
  const char* compiler = std::getenv("TITHE_CXX");
  const std::string cxx = compiler != nullptr && *compiler != '\0' ? compiler : "c++";
  std::ofstream(folder + "/k.cc") << program.text;
  const std::string command =
      cxx + " -std=c++17 -O1 -w -fPIC -shared -ffp-contract=off -fsanitize=alignment,bounds" +
      " -fsanitize-undefined-trap-on-error -I" TITHE_SOURCE_DIR "/tests/support -o " + folder + "/k.so " +
      folder + "/k.cc > " + folder + "/output 2>&1";
  const bool good = std::system(command.c_str()) == 0;
  program.log = read(folder + "/output");
  const std::string object = good ? read(folder + "/k.so") : "";
  std::error_code none;
  fs::remove_all(folder, none);
  if (!good) return kCompilation;
  CodeHead head = {.magic = {}, .bytes = object.size(), .sm = sm};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  program.code.assign(reinterpret_cast<const char*>(&head), sizeof head);
  program.code += object;
  return kOk;
}

Program& of(void* program) { return *static_cast<Program*>(program); }

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = 12;
  *minor = 9;
  return kOk;
}
const char* nvrtcGetErrorString(int code) {
  return code == kCompilation     ? "NVRTC_ERROR_COMPILATION"
         : code == kInvalidOption ? "NVRTC_ERROR_INVALID_OPTION"
                                  : "NVRTC_ERROR_INVALID_INPUT";
}
int nvrtcCreateProgram(void** program, const char* text, const char*, int headers, const char* const*,
                       const char* const* names) {
  auto made = new Program{.text = text, .log = {}, .code = {}, .headers = {}};
  made->headers.insert(names, names + headers);
  *program = made;
  return kOk;
}
int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return kOk;
}
int nvrtcCompileProgram(void* program, int options, const char* const* option) {
  unsigned sm = 0;
  std::set<std::string> given(option, option + options);
  for (const std::string& each : given)
    if (each.starts_with("--gpu-architecture=sm_")) sm = static_cast<unsigned>(std::atoi(each.c_str() + 22));
  for (const char* rounds : {"--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"})
    if (!given.contains(rounds)) return kInvalidOption;
  if (sm == 0 || sm > 120) return kInvalidOption;
  return compile(of(program), sm);
}
int nvrtcGetProgramLogSize(void* program, std::size_t* bytes) {
  *bytes = of(program).log.size() + 1;
  return kOk;
}
int nvrtcGetProgramLog(void* program, char* to) {
  std::memcpy(to, of(program).log.c_str(), of(program).log.size() + 1);
  return kOk;
}
int nvrtcGetCUBINSize(void* program, std::size_t* bytes) {
  *bytes = of(program).code.size();
  return kOk;
}
int nvrtcGetCUBIN(void* program, char* to) { return copy(of(program).code, to); }
int nvrtcGetPTXSize(void*, std::size_t*) { return kInvalidInput; }  // it makes none
int nvrtcGetPTX(void*, char*) { return kInvalidInput; }

}  // extern "C"
