// SPDX-License-Identifier: Apache-2.0
#include "device/compiler.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>

#include "base/environment.h"

namespace tithe::device {

namespace fs = std::filesystem;

namespace {

// The functions of nvrtc.h: OF(result, name, parameters). All but the last return an nvrtcResult.
#define TITHE_NVRTC(OF)                                                                                 \
  OF(int, nvrtcVersion, (int* major, int* minor))                                                       \
  OF(int, nvrtcCreateProgram,                                                                           \
     (void** program, const char* text, const char* name, int headers, const char* const* header_texts, \
      const char* const* header_names))                                                                 \
  OF(int, nvrtcDestroyProgram, (void** program))                                                        \
  OF(int, nvrtcCompileProgram, (void* program, int options, const char* const* option))                 \
  OF(int, nvrtcGetProgramLogSize, (void* program, std::size_t* bytes))                                  \
  OF(int, nvrtcGetProgramLog, (void* program, char* to))                                                \
  OF(int, nvrtcGetCUBINSize, (void* program, std::size_t* bytes))                                       \
  OF(int, nvrtcGetCUBIN, (void* program, char* to))                                                     \
  OF(int, nvrtcGetPTXSize, (void* program, std::size_t* bytes))                                         \
  OF(int, nvrtcGetPTX, (void* program, char* to))                                                       \
  OF(const char*, nvrtcGetErrorString, (int code))

struct Functions {
#define TITHE_DECLARE(result, name, parameters) result(*name) parameters;
  TITHE_NVRTC(TITHE_DECLARE)
#undef TITHE_DECLARE
};

// NVRTC has the functions of these headers built in; texts need only types from them.
constexpr std::array kHeaderNames = {"math.h", "stddef.h", "stdint.h", "string.h"};
constexpr std::array kHeaderTexts = {
    "", "",
    "typedef signed char int8_t;\ntypedef unsigned char uint8_t;\ntypedef short int16_t;\n"
    "typedef unsigned short uint16_t;\ntypedef int int32_t;\ntypedef unsigned int uint32_t;\n"
    "typedef long long int64_t;\ntypedef unsigned long long uint64_t;\n",
    ""};

// NVRTC's built-in functions are in a second library, which NVRTC searches by name only.
void load_builtins(const fs::path& library) {
  std::error_code none;
  for (const auto& beside : fs::directory_iterator(library.parent_path(), none)) {
    const std::string name = beside.path().filename();
    if (name.starts_with("libnvrtc-builtins.so")) ::dlopen(beside.path().c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

struct Compiler::Library {
  Functions call = {};
  int version = 0;
  std::string identity;
  std::mutex mutex;                                          // guards `known`
  std::map<std::pair<std::string, int>, std::string> known;  // by text and compute capability

  std::string error(int code) const { return call.nvrtcGetErrorString(code); }
  // Compiles to machine code; also returns the PTX if `ptx` is not nullptr.
  Result<std::string> compile(const std::string& text, int sm, std::string* ptx) const;
  std::string keep(const std::string& text, int sm, const std::string& code) {
    const std::lock_guard lock(mutex);
    return known.emplace(std::pair{text, sm}, code).first->second;
  }
  std::string log_of(void* program) const {
    std::size_t bytes = 0;
    if (call.nvrtcGetProgramLogSize(program, &bytes) != 0) return {};
    std::string log(bytes, '\0');
    if (call.nvrtcGetProgramLog(program, log.data()) != 0) return {};
    const std::size_t error = log.find("error");
    const std::size_t begin = error == std::string::npos ? 0 : log.rfind('\n', error) + 1;
    return first_line(log.substr(begin).c_str());
  }
};

Result<std::string> Compiler::Library::compile(const std::string& text, int sm, std::string* ptx) const {
  void* program = nullptr;
  if (const int code = call.nvrtcCreateProgram(&program, text.c_str(), "tithe.cu", kHeaderNames.size(),
                                               kHeaderTexts.data(), kHeaderNames.data());
      code != 0)
    return Status(Code::kUnsupported, fmt::format("NVRTC: {}", error(code)));
  const std::string gpu = fmt::format("--gpu-architecture=sm_{}", sm);
  const std::array options = {gpu.c_str(),   "--std=c++17",     "--fmad=false",
                              "--ftz=false", "--prec-div=true", "--prec-sqrt=true"};
  Result<std::string> made = [&]() -> Result<std::string> {
    if (const int code = call.nvrtcCompileProgram(program, options.size(), options.data()); code != 0)
      return Status(Code::kUnsupported,
                    fmt::format("NVRTC {}.{} cannot compile for sm_{}: {}: {}", version / 1000,
                                version % 1000 / 10, sm, error(code), log_of(program)));
    const auto get = [&](auto size_of, auto get_of, std::string& out) -> Status {
      std::size_t bytes = 0;
      int code = size_of(program, &bytes);
      out.assign(bytes, '\0');
      if (code == 0) code = get_of(program, out.data());
      if (code != 0 || bytes == 0) return {Code::kUnsupported, fmt::format("NVRTC: {}", error(code))};
      return {};
    };
    std::string out;
    if (ptx != nullptr) TITHE_TRY(get(call.nvrtcGetPTXSize, call.nvrtcGetPTX, *ptx));
    TITHE_TRY(get(call.nvrtcGetCUBINSize, call.nvrtcGetCUBIN, out));
    return out;
  }();
  call.nvrtcDestroyProgram(&program);
  return made;
}

// Loads NVRTC and resolves its functions. The identity (version, path, size, time stamp) is part of cache keys.
Result<Compiler> Compiler::load(const std::string& library) {
  if (library.find('/') != std::string::npos) load_builtins(library);
  void* const loaded = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) return Status(Code::kUnsupported, fmt::format("there is no NVRTC: {}", ::dlerror()));
  const auto made = std::make_shared<Library>();
  Functions& call = made->call;
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(loaded, symbol));
    return function != nullptr;
  };
#define TITHE_FIND(result, name, parameters) \
  if (!find(call.name, #name))               \
    return Status(Code::kUnsupported, "NVRTC has no " #name ": install a newer NVRTC");
  TITHE_NVRTC(TITHE_FIND)
#undef TITHE_FIND
  int major = 0, minor = 0;
  if (const int code = call.nvrtcVersion(&major, &minor); code != 0)
    return Status(Code::kUnsupported, fmt::format("NVRTC: {}", made->error(code)));
  made->version = 1000 * major + 10 * minor;
  ::Dl_info from = {};
  std::error_code none;
  if (::dladdr(reinterpret_cast<const void*>(call.nvrtcVersion), &from) != 0 && from.dli_fname != nullptr) {
    const fs::path file = fs::canonical(from.dli_fname, none);
    made->identity = fmt::format("{} {} {} {}", made->version, file.string(), fs::file_size(file, none),
                                 fs::last_write_time(file, none).time_since_epoch().count());
  }
  return Compiler(made);
}

int Compiler::version() const { return library_->version; }
const std::string& Compiler::identity() const { return library_->identity; }

Result<std::string> Compiler::code(const std::string& text, int sm) const {
  const std::pair key{text, sm};
  {
    const std::lock_guard lock(library_->mutex);
    if (const auto at = library_->known.find(key); at != library_->known.end()) return at->second;
  }
  Result<std::string> made = library_->compile(text, sm, nullptr);
  if (!made.ok()) return made;
  return library_->keep(text, sm, *made);
}

Result<std::string> Compiler::ptx(const std::string& text, int sm) const {
  std::string ptx;
  const Result<std::string> made = library_->compile(text, sm, &ptx);
  if (!made.ok()) return made;
  library_->keep(text, sm, *made);
  return ptx;
}

const Result<Compiler>& this_compiler() {
  static const Result<Compiler> kCompiler = []() -> Result<Compiler> {
    if (const std::string library = nvrtc_library(); !library.empty()) return Compiler::load(library);
    Result<Compiler> found = Compiler::load("libnvrtc.so.13");
    return found.ok() ? found : Compiler::load("libnvrtc.so.12");
  }();
  return kCompiler;
}

}  // namespace tithe::device
